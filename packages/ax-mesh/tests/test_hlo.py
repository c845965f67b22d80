"""Programs as XLA prints them: what is where, how often, in what order, and between whom."""

from __future__ import annotations

import pytest
from ax_mesh._collectives import collectives
from ax_mesh._hlo import Shape, parse
from ax_mesh._overlap import overlaps

PARTITIONED = """\
HloModule step, num_partitions=8

FileNames
1 "model.py"

FunctionNames
1 "loss"
2 "layer"

FileLocations
1 {{file_name_id=1 function_name_id=1 line=7 end_line=7 column=4 end_column=9}}
2 {{file_name_id=1 function_name_id=2 line=3 end_line=3 column=4 end_column=9}}

StackFrames
1 {{file_location_id=1 parent_frame_id=1}}
2 {{file_location_id=2 parent_frame_id=2}}

ENTRY %main (param: bf16[16,4]) -> bf16[16,4] {{
  %param = bf16[16,4]{{1,0:T(8,128)(2,1)}} parameter(0)
  ROOT %sum = bf16[16,4]{{1,0}} all-reduce(%param), channel_id=1, {groups}, to_apply=%add, metadata={{op_name="jit(f)/dot" stack_frame_id=2}}
}}
"""


@pytest.mark.parametrize(
    ("groups", "axes", "size"),
    [
        ("replica_groups={{0,1},{2,3},{4,5},{6,7}}", ("tensor",), 2),
        ("replica_groups={{0,4},{1,5},{2,6},{3,7}}", ("data",), 2),
        ("replica_groups={}", ("data", "fsdp", "tensor"), 8),
        ("replica_groups=[4,2]<=[8]", ("tensor",), 2),
        ("replica_groups=[4,2]<=[2,2,2]T(0,2,1)", ("fsdp",), 2),
        ("replica_groups=[2,4]<=[4,2]T(1,0)", ("data", "fsdp"), 4),
        ("replica_groups=mesh['a'=4,'b'=2] {'a'}", ("data", "fsdp"), 4),
        ("replica_groups=mesh['a'=8] {'a':(1)2}", ("data",), 2),
        ("replica_groups=mesh['a'=8] {'a':(2)2}", ("fsdp",), 2),
        ("replica_groups=mesh['a'=8] {'a':(1)2, 'a':(4)2}", ("data", "tensor"), 4),
        ("replica_groups=mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}", ("data",), 2),
        ("replica_groups=mesh['a'=2,'b'=4], device_ids=(0,2,4,6,1,3,5,7) {'b'}", ("data", "fsdp"), 4),
    ],
)
def test_groups_of_devices_run_along_mesh_axes(groups: str, axes: tuple[str, ...], size: int) -> None:
    module = parse(PARTITIONED.format(groups=groups))
    (found,) = collectives(module, {"data": 2, "fsdp": 2, "tensor": 2})
    assert (found.axes, found.group_size) == (axes, size)
    assert found.shapes == (Shape("bf16", (16, 4)),)
    assert found.result_bytes == 128
    assert [str(frame) for frame in found.frames] == ["model.py:3", "model.py:7"]
    assert [frame.function for frame in found.frames] == ["layer", "loss"]


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(ValueError, match="no ENTRY computation"):
        parse("HloModule nothing\n")
    with pytest.raises(ValueError, match="no groups of devices"):
        collectives(parse(PARTITIONED.format(groups="replica_groups=everyone")), {"data": 8})


LOOP = """\
%condition (state: (s32[], f32[4])) -> pred[] {{
  %state = (s32[], f32[4]{{0}}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %bound = s32[] constant(8)
  ROOT %less = pred[] compare(%i, %bound), direction=LT
}}

%body (state: (s32[], f32[4])) -> (s32[], f32[4]) {{
  %state = (s32[], f32[4]{{0}}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %x = f32[4]{{0}} get-tuple-element(%state), index=1
  %one = s32[] constant(1)
  %two = s32[] constant(2)
{step}
  %sum = f32[4]{{0}} all-reduce(%x), replica_groups=[1,4]<=[4], to_apply=%add
  ROOT %next = (s32[], f32[4]{{0}}) tuple(%then, %sum)
}}

ENTRY %main (x: f32[4], n: s32[]) -> (s32[], f32[4]) {{
  %x = f32[4]{{0}} parameter(0)
  %n = s32[] parameter(1)
  %zero = s32[] constant(0)
  %begin = (s32[], f32[4]{{0}}) tuple({start}, %x)
  ROOT %loop = (s32[], f32[4]{{0}}) while(%begin), condition=%condition, body=%body
}}
"""


@pytest.mark.parametrize(
    ("start", "step", "times", "exact"),
    [
        ("%zero", "  %then = s32[] add(%i, %one)", 8, True),
        ("%zero", "  %half = s32[] add(%i, %one)\n  %then = s32[] add(%one, %half)", 4, True),
        ("%zero", "  %half = s32[] add(%i, %one)\n  %then = s32[] add(%half, %two)", 3, True),
        ("%zero", "  %same = s32[] copy(%i)\n  %then = s32[] add(%same, %two)", 4, True),
        ("%zero", "  %then = s32[] multiply(%i, %two)", 1, False),
        ("%zero", "  %then = s32[] add(%i, %i)", 1, False),
        ("%n", "  %then = s32[] add(%i, %one)", 1, False),
    ],
)
def test_loops_run_as_often_as_they_count(start: str, step: str, times: int, exact: bool) -> None:
    (found,) = collectives(parse(LOOP.format(start=start, step=step)), {"data": 4})
    assert (found.times, found.exact) == (times, exact)


SCHEDULED = """\
HloModule step, is_scheduled=true

%fused_start (p: f32[4]) -> (f32[4], f32[16]) {
  %p = f32[4]{0} parameter(0)
  %gather.1 = f32[16]{0} all-gather(%p), channel_id=7, replica_groups=[1,4]<=[4], dimensions={0}
  ROOT %start = (f32[4]{0}, f32[16]{0}) custom-call(%gather.1), custom_call_target="AsyncCollectiveStart"
}

%fused_product (p: f32[4,4], q: f32[4]) -> f32[4,4] {
  %p = f32[4,4]{1,0} parameter(0)
  %q = f32[4]{0} parameter(1)
  %gather.2 = f32[16]{0} all-gather(%q), channel_id=7, replica_groups=[1,4]<=[4], dimensions={0}
  ROOT %product = f32[4,4]{1,0} convolution(%p, %p), dim_labels=bf_io->bf
}

%fused_done (p: f32[4]) -> f32[16] {
  %p = f32[4]{0} parameter(0)
  %gather.3 = f32[16]{0} all-gather(%p), channel_id=7, replica_groups=[1,4]<=[4], dimensions={0}
  ROOT %done = f32[16]{0} custom-call(%p, %gather.3), custom_call_target="AsyncCollectiveDone"
}

%body (state: (s32[], f32[4,4])) -> (s32[], f32[4,4]) {
  %state = (s32[], f32[4,4]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %x = f32[4,4]{1,0} get-tuple-element(%state), index=1
  %sum-start = f32[4,4]{1,0} all-reduce-start(%x), replica_groups=[1,4]<=[4], to_apply=%add
  %y = f32[4,4]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %z = f32[4,4]{1,0} add(%y, %y)
  %sum-done = f32[4,4]{1,0} all-reduce-done(%sum-start)
  %alone = f32[4,4]{1,0} all-reduce(%sum-done), replica_groups=[1,4]<=[4], to_apply=%add
  ROOT %next = (s32[], f32[4,4]{1,0}) tuple(%i, %alone)
}

ENTRY %main (p: f32[4], x: f32[4,4], state: (s32[], f32[4,4])) -> f32[16] {
  %p = f32[4]{0} parameter(0)
  %x = f32[4,4]{1,0} parameter(1)
  %state = (s32[], f32[4,4]{1,0}) parameter(2)
  %loop = (s32[], f32[4,4]{1,0}) while(%state), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"6"}}
  %begin = (f32[4]{0}, f32[16]{0}) fusion(%p), kind=kCustom, calls=%fused_start
  %middle = f32[4,4]{1,0} fusion(%x, %p), kind=kOutput, calls=%fused_product
  ROOT %end = f32[16]{0} fusion(%p), kind=kCustom, calls=%fused_done
}
"""


def test_what_is_computed_between_the_ends_of_a_collective() -> None:
    found = [(each.kind, each.times, each.asynchronous, each.products_meanwhile) for each in overlaps(parse(SCHEDULED))]
    assert found == [
        ("all-gather", 1, True, 1),
        ("all-reduce", 6, True, 1),
        ("all-reduce", 6, False, 0),
    ]
