"""The stacks of ``peers.py``, each of which it runs in a process of its own.

    python benchmarks/peers_worker.py STACK FOLDER

reads the task from the folder, builds, answers with the seconds that took, does a step for every line ``step`` that it
is given, and answers any other line, names of distributions, with how many are installed for their sake. Answers are
lines of JSON. JAX, PyTorch and all that stands on them is imported where it is used: what a process imports is measured.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module, metadata
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Step: TypeAlias = Callable[[], float]
"""Does one step, and gives the loss before it when all of it is complete."""

WEIGHT_DECAY, CLIP_NORM, BETAS, WARMUP = 0.1, 1.0, (0.9, 0.95), 10


class Task(NamedTuple):
    """What all have to do, without a word of anybody's library."""

    quick: bool
    dim: int
    num_layers: int
    num_heads: int
    head_dim: int
    hidden_dim: int
    vocab_size: int
    learning_rate: float
    num_steps: int
    """Of the schedule."""
    arrays: dict[str, np.ndarray]
    """The batch's and the first weights, by the names that the hand-written model of ``train_step.py`` uses."""

    def layers(self) -> dict[str, np.ndarray]:
        """The layers' weights, stacked along the first dim."""
        prefix = "layers/"
        return {name.removeprefix(prefix): x for name, x in self.arrays.items() if name.startswith(prefix)}


class Laps:
    """Seconds that each part of the start takes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def end(self, part: str) -> None:
        now = time.perf_counter()
        self.seconds[part], self._since = now - self._since, now


# The stacks. Each is a function that ends its laps "import" and "build" and, where it compiles ahead, "compile".


def ours(task: Task, laps: Laps, *, name: str = "ours") -> Step:
    """The recipe's model and learner in the trainer's step."""
    train_step = import_module("train_step")
    laps.end("import")
    candidate = train_step.CANDIDATES[name](train_step.SMALL if task.quick else train_step.Workload())
    laps.end("build")
    laps.seconds["compile"] = candidate.compile_seconds
    laps.seconds["build"] -= candidate.compile_seconds
    step: Step = candidate.run
    return step


def pure_jax(task: Task, laps: Laps) -> Step:
    """The hand-written step. Its module imports our packages too: it begins with our recipe's weights."""
    return ours(task, laps, name="pure JAX")


def maxtext(task: Task, laps: Laps) -> Step:
    jax = import_module("jax")
    nnx = import_module("flax.nnx")
    spmd = import_module("flax.core.spmd")
    train = import_module("maxtext.trainers.pre_train.train")
    pyconfig = import_module("maxtext.configs.pyconfig")
    sharding = import_module("maxtext.utils.sharding")
    train_utils = import_module("maxtext.utils.train_utils")
    laps.end("import")

    batch_size, length = task.arrays["tokens"].shape
    config = pyconfig.initialize(
        ["", str(files("maxtext.configs") / "base.yml")],
        run_name="peers",
        base_output_directory="",
        hardware="cpu",
        skip_jax_distributed_system=True,
        enable_checkpointing=False,
        dataset_type="synthetic",
        jax_cache_dir="",
        log_config=False,
        # The model, its own default decoder.
        decoder_block="llama2",
        base_emb_dim=task.dim,
        base_num_decoder_layers=task.num_layers,
        base_num_query_heads=task.num_heads,
        base_num_kv_heads=task.num_heads,
        head_dim=task.head_dim,
        base_mlp_dim=task.hidden_dim,
        vocab_size=task.vocab_size,
        max_target_length=length,
        per_device_batch_size=batch_size,
        dtype="float32",
        weight_dtype="float32",
        enable_dropout=False,
        packing=False,
        scan_layers=True,
        remat_policy="none",
        attention="dot_product",
        # The optimizer.
        opt_type="adamw",
        learning_rate=task.learning_rate,
        steps=task.num_steps,
        learning_rate_schedule_steps=task.num_steps,
        warmup_steps_fraction=WARMUP / task.num_steps,
        adam_b1=BETAS[0],
        adam_b2=BETAS[1],
        adam_weight_decay=WEIGHT_DECAY,
        adamw_mask=["norm"],
        gradient_clipping_threshold=CLIP_NORM,
    )
    # As its train_loop does.
    _, _, shardings, _, mesh, _, _, loader, _, _, whole = train_utils.setup_train_loop(config, None)
    nnx.update(whole.model, nnx.State(nested(maxtext_weights(task, axis=config.param_scan_axis))))
    graph, state = nnx.split(whole)
    params_shardings, shardings = sharding.maybe_update_params_sharding_with_opt(config, shardings)
    jitted, _ = train_utils.jit_train_and_eval_step(
        config, graph, mesh, state, shardings, train.train_step, params_shardings=params_shardings
    )
    ones = np.ones((batch_size, length), np.int32)
    positions = ones.cumsum(axis=1, dtype=np.int32) - 1
    sides = {"inputs": task.arrays["tokens"], "targets": task.arrays["targets"]}
    batch = {
        **sides,
        **{f"{side}_position": positions for side in sides},
        **{f"{side}_segmentation": ones for side in sides},
    }
    batch = jax.device_put(batch, loader.input_data_shardings)
    laps.end("build")
    with jax.set_mesh(mesh), spmd.logical_axis_rules(config.logical_axis_rules):
        compiled = jitted.lower(state, batch).compile()
    laps.end("compile")

    def step() -> float:
        nonlocal state
        state, metrics = compiled(state, batch)
        jax.block_until_ready(state)
        return float(metrics["scalar"]["learning/loss"])

    return step


def maxtext_weights(task: Task, *, axis: int) -> dict[str, np.ndarray]:
    """Its names and shapes: layers along ``axis``, and the attention's scale in the query's weights instead of the logits."""
    names = {
        "attention_norm": "pre_self_attention_layer_norm/scale",
        "ffn_norm": "post_self_attention_layer_norm/scale",
        "query": "self_attention/query/kernel",
        "key": "self_attention/key/kernel",
        "value": "self_attention/value/kernel",
        "output": "self_attention/out/kernel",
        "gate": "mlp/wi_0/kernel",
        "up": "mlp/wi_1/kernel",
        "down": "mlp/wo/kernel",
    }
    layers = task.layers()
    layers["query"] = layers["query"] * task.head_dim**-0.5
    return {
        "token_embedder/embedding": task.arrays["outer/embedding"],
        "decoder/decoder_norm/scale": task.arrays["outer/norm"],
        "decoder/logits_dense/kernel": task.arrays["outer/head"].T,
        **{f"decoder/layers/{names[name]}": np.moveaxis(x, 0, axis) for name, x in layers.items()},
    }


def nested(flat: Mapping[str, np.ndarray]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, leaf in flat.items():
        *parents, name = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = leaf
    return tree


def pytorch(task: Task, laps: Laps, *, compiled: bool = False) -> Step:
    torch = import_module("torch")
    transformers = import_module("transformers")
    model_class = transformers.LlamaForCausalLM  # what is imported at its first mention
    laps.end("import")

    model = model_class(
        transformers.LlamaConfig(
            vocab_size=task.vocab_size,
            hidden_size=task.dim,
            intermediate_size=task.hidden_dim,
            num_hidden_layers=task.num_layers,
            num_attention_heads=task.num_heads,
            head_dim=task.head_dim,
            rms_norm_eps=1e-5,
            use_cache=False,
            attn_implementation="sdpa",
        )
    )
    model.load_state_dict({name: torch.tensor(x) for name, x in torch_weights(task).items()})
    decayed: dict[bool, list[Any]] = {True: [], False: []}
    for name, parameter in model.named_parameters():
        decayed["norm" not in name].append(parameter)
    groups = [{"params": decayed[True], "weight_decay": WEIGHT_DECAY}, {"params": decayed[False], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=task.learning_rate, betas=BETAS, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: cosine(done, task.num_steps))
    tokens, targets = (torch.tensor(task.arrays[name], dtype=torch.int64) for name in ("tokens", "targets"))
    forward = torch.compile(model) if compiled else model
    laps.end("build")

    def step() -> float:
        logits = forward(input_ids=tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        return float(loss.item())

    return step


def pytorch_compiled(task: Task, laps: Laps) -> Step:
    return pytorch(task, laps, compiled=True)


def cosine(done: int, num_steps: int) -> float:
    """The part of the full learning rate after so many steps: warmed up, then down to a tenth."""
    if done < WARMUP:
        return done / WARMUP
    return 0.1 + 0.9 * (1 + math.cos(math.pi * (done - WARMUP) / (num_steps - WARMUP))) / 2


def torch_weights(task: Task) -> dict[str, np.ndarray]:
    """Its names, and [out, in] matrices with heads flattened."""

    def matrix(x: np.ndarray, num_in: int) -> np.ndarray:
        return x.reshape(num_in, -1).T

    weights = {
        "model.embed_tokens.weight": task.arrays["outer/embedding"],
        "model.norm.weight": task.arrays["outer/norm"],
        "lm_head.weight": task.arrays["outer/head"],
    }
    for name, stacked in task.layers().items():
        for layer, x in enumerate(stacked):
            prefix = f"model.layers.{layer}."
            if name == "attention_norm":
                weights[f"{prefix}input_layernorm.weight"] = x
            elif name == "ffn_norm":
                weights[f"{prefix}post_attention_layernorm.weight"] = x
            elif name in ("gate", "up", "down"):
                weights[f"{prefix}mlp.{name}_proj.weight"] = matrix(x, len(x))
            else:
                num_in = task.num_heads * task.head_dim if name == "output" else task.dim
                weights[f"{prefix}self_attn.{name[0]}_proj.weight"] = matrix(x, num_in)
    return weights


STACKS: dict[str, Callable[[Task, Laps], Step]] = {
    "ours": ours,
    "jax": pure_jax,
    "maxtext": maxtext,
    "torch": pytorch,
    "torch-compiled": pytorch_compiled,
}


# The process.


def work(name: str, folder: Path) -> None:
    """Build, say so, then do a step for every line that comes, and answer it; at last tell what is installed for it."""
    # What a library prints must not come between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with np.load(folder / "arrays.npz") as arrays:
        task = Task(**json.loads((folder / "task.json").read_text()), arrays=dict(arrays))
    laps = Laps()
    step = STACKS[name](task, laps)
    del task
    print(json.dumps(laps.seconds), file=answers)
    for line in sys.stdin:
        if line == "step\n":
            before = cpu_seconds()
            loss = step()
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            answer: object = {"loss": loss, "cpu": cpu_seconds() - before, "peak_rss_mb": peak}
        else:
            answer = num_distributions(line.split())
        print(json.dumps(answer), file=answers)


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def num_distributions(names: Sequence[str]) -> int | None:
    """How many this environment has because of these: they and all that they require. None where one isn't installed."""
    requirements = import_module("packaging.requirements")
    utils = import_module("packaging.utils")
    seen: set[tuple[str, str]] = set()

    def follow(name: str, extra: str) -> None:
        if (key := (utils.canonicalize_name(name), extra)) in seen:
            return
        seen.add(key)
        for each in map(requirements.Requirement, metadata.requires(name) or ()):
            if each.marker is None or each.marker.evaluate({"extra": extra}):
                for wanted in ("", *each.extras):
                    follow(each.name, wanted)

    try:
        for name in names:
            follow(name, "")
    except metadata.PackageNotFoundError:
        return None
    return len({name for name, _ in seen})


if __name__ == "__main__":
    work(sys.argv[1], Path(sys.argv[2]))
