"""A trained model as an ONNX file, which other languages and servers run without Python.

    input   columns        double (n, d), in the order of the metadata's `columns`
    output  scores         double (n, k): a.w for two classes, for each of more classes, or of a regression
            label          (n,): the class, as it was declared; not of a regression
            probabilities  double (n, classes), where the loss gives scores that meaning

Raw cells are not encoded in the file: with a schema its input are the columns that the schema makes, which the
metadata names (`age`, `sex=female`). Rows are clipped, centred and scaled in it as in training. What was promised
stands in its metadata and its description.
"""

import json
import math
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.errors import ConfigError, StorageError
from privadmm.optim.losses import Link
from privadmm.runs.model import Model, label_array, notices

OPSET, IR_VERSION = 17, 8  # of 2022: what servers of today and of then read
ROOM = 2.0**-52
WORDS = "UO"  # kinds of numpy arrays whose cells are written as words; so are words beside numbers


def onnx() -> Any:
    """The library, which is an extra."""
    try:
        import onnx
    except ImportError:
        raise ConfigError("writing ONNX needs the onnx library: pip install 'privadmm[onnx]'") from None
    return onnx


def save(path: str | Path, models: Sequence[Model], classes: Any = None) -> None:
    """Write the models of one fit: one, or one for each class that is told from the rest."""
    content = onnx_model(models, classes).SerializeToString()
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be written ({error.strerror}); name a file in a folder that exists"
        ) from error


def onnx_model(models: Sequence[Model], classes: Any = None) -> Any:
    """The file's content. `classes` are those of the models' frame if None."""
    library, first = onnx(), models[0]
    helper, double = library.helper, library.TensorProto.DOUBLE
    if classes is None and first.frame.classes is not None:
        classes = label_array(first.frame.classes)
    net = Net(library)
    net.node("Identity", scored(net, models), out="scores")
    outputs = [helper.make_tensor_value_info("scores", double, [None, len(models)])]
    if classes is not None:
        labels = np.asarray(classes)
        net.node("Gather", net.constant(labels), chosen(net, len(models)), out="label")
        words = labels.dtype.kind in WORDS
        kind = library.TensorProto.STRING if words else helper.np_dtype_to_tensor_dtype(labels.dtype)
        outputs.append(helper.make_tensor_value_info("label", kind, [None]))
        if (link := first.link) is not None:
            net.node("Identity", likely(net, link, len(models)), out="probabilities")
            outputs.append(helper.make_tensor_value_info("probabilities", double, [None, max(2, len(models))]))
    columns = helper.make_tensor_value_info("columns", double, [None, len(first.frame.names)])
    graph = helper.make_graph(net.nodes, "privadmm", [columns], outputs, net.constants)
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="privadmm")
    told = [repr(first)[1:-1], *notices(first.epsilon is not None, first.mode), *first.caveats]
    model.doc_string = ". ".join(told)
    facts: dict[str, Any] = {"columns": list(first.frame.names), "epsilon": first.epsilon, "delta": first.delta}
    facts |= {"mode": first.mode, "algorithm": first.algorithm, "colluding": first.colluding, "notices": told[1:]}
    helper.set_model_props(model, {name: json.dumps(fact) for name, fact in facts.items()})
    library.checker.check_model(model, full_check=True)
    return model


class Net:
    """The nodes of a graph as they are made; each has one output."""

    def __init__(self, library: Any) -> None:
        self.library, self.names = library, (f"v{number}" for number in count())
        self.nodes, self.constants = list[Any](), list[Any]()

    def node(self, kind: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        name = next(self.names) if out is None else out
        self.nodes.append(self.library.helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, value: Any) -> str:
        name, array = next(self.names), np.asarray(value)
        if array.dtype.kind in WORDS:
            texts = [str(cell).encode() for cell in array.ravel()]
            tensor = self.library.helper.make_tensor(name, self.library.TensorProto.STRING, array.shape, texts)
        else:
            tensor = self.library.numpy_helper.from_array(array, name)
        self.constants.append(tensor)
        return name

    def longest(self, x: str) -> str:
        """The largest absolute entry of each row, (n, 1)."""
        return self.node("ReduceMax", self.node("Abs", x), axes=[1], keepdims=1)

    def length(self, x: str, width: int) -> str:
        """The l2 norm of each row, (n, 1), rounded up as in training."""
        squares = self.node("ReduceSum", self.node("Mul", x, x), self.constant(np.array([1])), keepdims=1)
        return self.node("Mul", self.node("Sqrt", squares), self.constant(1 + (width + 8) * ROOM))

    def beside(self, x: str, value: float) -> str:
        """The rows with one more column of this value."""
        ones = self.node("ReduceMax", x, axes=[1], keepdims=1)
        column = self.node("Add", self.node("Mul", ones, self.constant(0.0)), self.constant(value))
        return self.node("Concat", x, column, axis=1)


def scored(net: Net, models: Sequence[Model]) -> str:
    """The scores, (n, k), of rows as they are given."""
    frame, d = models[0].frame, len(models[0].frame.names)
    if not frame.groups:
        rows = clipped(net, "columns", d, frame.row_bound, frame.intercept)
    else:
        parts = []
        for number, (group, bound) in enumerate(zip(frame.groups, frame.row_bounds, strict=True)):
            own = net.node("Gather", "columns", net.constant(np.array(group, dtype=np.int64)), axis=1)
            if frame.clipped:
                last = number == len(frame.groups) - 1
                parts.append(clipped(net, own, len(group), bound, frame.intercept if last else 0.0))
            else:
                parts.append(net.node("Div", own, net.constant(bound)))
        rows = net.node("Concat", *parts, axis=1)
    if (map := models[0].features) is not None:
        centred = net.node("Mul", net.node("Sub", rows, net.constant(map.M)), net.constant(map.A))
        v = net.node("Div", centred, positive(net, net.longest(centred)))
        v = net.node("Div", v, positive(net, net.length(v, len(map.M))))
        rows = net.beside(net.node("Mul", v, net.constant(math.sqrt(1 - map.b**2))), map.b)
    weights: Floats = np.stack([model.weights for model in models], axis=1)
    return net.node("MatMul", rows, net.constant(weights[frame.party_order] if frame.groups else weights))


def clipped(net: Net, x: str, width: int, bound: float, intercept: float) -> str:
    """Rows in the unit ball, by the map of training (`Clip`)."""
    v = net.node("Div", x, net.node("Max", net.longest(x), net.constant(bound)))
    length = net.node("Max", net.length(v, width), net.constant(1.0))
    rows = net.node("Div", net.node("Mul", v, net.constant(math.sqrt(1 - intercept**2))), length)
    return net.beside(rows, intercept) if intercept else rows


def positive(net: Net, x: str) -> str:
    """x, or 1 where it is 0."""
    return net.node("Where", net.node("Greater", x, net.constant(0.0)), x, net.constant(1.0))


def chosen(net: Net, scores: int) -> str:
    """The place of each row's class, (n,)."""
    if scores > 1:
        return net.node("ArgMax", "scores", axis=1, keepdims=0)
    above = net.node("Cast", net.node("Greater", "scores", net.constant(0.0)), to=net.library.TensorProto.INT64)
    return net.node("Squeeze", above, net.constant(np.array([1])))


def likely(net: Net, link: Link, scores: int) -> str:
    """Each class's probability, (n, classes), as `predict_proba` has it."""
    unit = net.constant(1.0)
    each = net.node("Sigmoid", "scores")
    if link == "half_logistic":  # 1/(1 + 2/(1 + e^s)) for s >= 0, and by symmetry below
        twice = net.node("Mul", net.node("Sigmoid", net.node("Neg", net.node("Abs", "scores"))), net.constant(2.0))
        far = net.node("Div", unit, net.node("Add", unit, twice))
        above = net.node("Greater", "scores", net.constant(0.0))
        each = net.node("Where", above, far, net.node("Sub", unit, far))
    if scores == 1:
        return net.node("Concat", net.node("Sub", unit, each), each, axis=1)
    odds = net.node("Add", each, net.constant(float(np.finfo(float).tiny)))
    return net.node("Div", odds, net.node("ReduceSum", odds, net.constant(np.array([1])), keepdims=1))
