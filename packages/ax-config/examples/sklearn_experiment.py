"""A scikit-learn experiment that is described by a config: which data, which preparation, which model, how it is judged.

    pip install ax-config scikit-learn
    python sklearn_experiment.py                             a base, and a sweep around it
    python sklearn_experiment.py model.C=0.1 folds=3         the same, from another base

scikit-learn knows nothing of configs, and needs nothing: `config_for(LogisticRegression)` has the parameters of
`LogisticRegression`, with its defaults. Only the experiment itself is ours, and it says what it consists of in `Config`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import ax_config
from ax_config import REQUIRED, Buildable, ConfigError, config_for, diff, dumps, field, loads, override, replacing
from ax_config.sweeps import axis, concat, product, variants
from numpy import ndarray
from sklearn.base import ClassifierMixin, TransformerMixin
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


class Experiment:
    """Cross-validates a classifier."""

    class Config(ax_config.Config["Experiment"]):
        """Nested in the class that it describes: `Config(…).build()` is an `Experiment`."""

        # `Buildable[X]` takes any config of any X: the experiment neither knows nor cares which.
        data: Buildable[tuple[ndarray, ndarray]] = field(default_factory=lambda: config_for(load_wine)(return_X_y=True))
        scaler: Buildable[TransformerMixin] | None = field(default_factory=config_for(StandardScaler))
        model: Buildable[ClassifierMixin]  # no default: whoever makes the config has to say
        folds: int = field(default=5, help="parts that the data is cut into, each of which is left out once")
        seed: int = 0

    def __init__(self, cfg: Config, /) -> None:
        """Build the parts. `build` is given what the parts leave open for us: the seed."""
        self.inputs, self.labels = cfg.data.build()
        scaler = [cfg.scaler.build()] if cfg.scaler is not None else []
        self.pipeline = make_pipeline(*scaler, cfg.model.build(random_state=cfg.seed))
        self.folds = cfg.folds

    def accuracy(self) -> float:
        """The share of right answers for data that was left out."""
        return float(cross_val_score(self.pipeline, self.inputs, self.labels, cv=self.folds).mean())


# `REQUIRED` leaves an argument open: the experiment fills it, so that one seed serves whatever model stands there.
logistic = config_for(LogisticRegression)(max_iter=1000, random_state=REQUIRED)
forest = config_for(RandomForestClassifier)(n_estimators=20, random_state=REQUIRED)

# What to try: some strengths of regularisation; then another model in the place of the first, with and without a scaler.
# Each is a change to whatever config it is applied to, and has a name. (`replace(config, "model", forest)` swaps one at once.)
sweep = concat(
    axis("model.C", [0.01, 0.1, 1.0, 10.0]),
    product(
        variants({"forest": replacing("model", forest)}),
        axis("model.max_depth", [2, 8]),
        axis("scaler", [config_for(StandardScaler)(), None]),
    ),
)


def main(overrides: list[str]) -> None:
    """Try all that the sweep has, then show, keep and reload the best."""
    try:
        # What the command line says is read by the type of the field; a slip is told, with what was probably meant.
        base = override(Experiment.Config(model=logistic), overrides)
        experiments = dict(sweep.on(base))  # each a tree of its own; the base stays as it is
    except ConfigError as error:
        sys.exit(str(error))

    scores = {name: config.build().accuracy() for name, config in experiments.items()}
    ranking = sorted(scores, key=lambda name: -scores[name])
    for name in ranking:
        print(f"{name:<40} {scores[name]:.4f}")

    best = experiments[ranking[0]]
    print(f"\n{ranking[0]} differs from the base in:")
    for change in diff(base, best):
        print(f"  {change}")

    # The text has every value, so it is a complete record: it gives back an equal config, and that the same score.
    kept = Path("best.config")
    kept.write_text(dumps(best))
    again = loads(kept.read_text())
    assert isinstance(again, Experiment.Config)
    assert again == best
    print(f"\nreloaded from {kept}: {again.build().accuracy():.4f}")


if __name__ == "__main__":
    main(sys.argv[1:])
