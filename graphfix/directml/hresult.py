"""What DirectML's errors mean, what they have been seen to come from, and what finds it.

The sources: WIL (microsoft/wil, result_macros.h) for how an exception becomes an HRESULT, ONNX
Runtime for where it is thrown, and runs on onnxruntime-directml 1.24.4 where it says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """Something that an error comes from.

    Attributes:
        text: What it is.
        source: Where that is known from.
        rules: The passes and rules that find it.
    """

    text: str
    source: str
    rules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Code:
    """An error that users paste.

    Attributes:
        key: The HRESULT in eight digits, or the telling part of a message.
        title: Its name.
        meaning: What it says, and what it does not say.
        causes: What it has been seen to come from, the commonest first.
        advice: What to do where the graph is not at fault.
        pattern: How it is told in a text, if not by its key.
    """

    key: str
    title: str
    meaning: str
    causes: tuple[Cause, ...]
    advice: str = ""
    pattern: str = ""


_ALLOWZERO = "Reshape with allowzero=1 and a -1 in its shape, which torch's dynamo exporter writes"
_FROZEN = "a Reshape frozen at the length that the model was traced with, run at another"
_STALE = "a shape in the file that contradicts the graph (stale value_info)"
_ALLOWZERO_SOURCE = "ORT OperatorHelper.cpp 2333-2388; run: 83 of 93 dynamo exports"
_PAST = Cause(
    "a ReverseSequence of more than two dims, which reads lengths past their end",
    "ORT DmlOperatorReverseSequence.cpp; run: 3 and 4 dims",
    ("reverse-2d",),
)
_HUNG = (
    Cause(
        "one operator that takes longer than Windows lets the GPU be busy (2 s: a TDR): a very "
        "large MatMul, attention over a long input, a weak GPU",
        "ORT DmlGraphFusionHelper.cpp, PR #28495; Microsoft's TDR registry page",
    ),
    Cause("a driver that crashed, was updated meanwhile, or overheats", "DXGI_ERROR on MSDN"),
)
_SHORTER = (
    "If no rule finds it in the graph, try shorter inputs or a smaller batch, the newest driver, "
    "and the provider option disable_metacommands=true, which leaves the vendor's kernels out."
)

CODES: tuple[Code, ...] = (
    Code(
        "8007023E",
        "ERROR_UNHANDLED_EXCEPTION",
        "ONNX Runtime threw an ordinary C++ exception inside a DirectML kernel, and its message "
        "was lost: WIL maps any std::exception without an HRESULT to this one (result_macros.h "
        "3663-3670). It comes at a run, not when the session is made.",
        (
            Cause(_ALLOWZERO, _ALLOWZERO_SOURCE, ("reshape-allowzero",)),
            Cause(_FROZEN, "run: frozen at 7, 5 frames", ("thaw",)),
        ),
    ),
    Code(
        "80070057",
        "E_INVALIDARG",
        "A check of ONNX Runtime's DirectML provider or of DirectML itself failed: a shape or a "
        "parameter is not as it must be. It comes when the session is made if the shapes are "
        "static, at the first run if they are not.",
        (
            Cause(_ALLOWZERO, _ALLOWZERO_SOURCE, ("reshape-allowzero",)),
            Cause(
                "a 1-D ConvTranspose that has the attribute output_padding, even 0",
                "run, in all combinations of its attributes",
                ("convtranspose-2d",),
            ),
            Cause(
                "a static Slice that starts at -2147483648 or less and ends below 0",
                "run",
                ("slice-start",),
            ),
            Cause(
                "a part of a tensor, along its first axis that is not 1, that a Slice cuts out for "
                "one operator that goes by elements, where all sizes are fixed",
                "run: DmlGraphFusionHelper.cpp",
                ("slice-gather",),
            ),
            Cause(
                "a Pad whose amounts are computed through floats, as ceil(T / stride) - T is: it "
                "was seen to get others",
                "run; what overwrites them is not known",
                ("pad-amounts",),
            ),
            Cause(_STALE, "ORT MLOperatorAuthorImpl.cpp 2920-2936; run", ("fresh-shapes",)),
            Cause(
                "a Reshape to more than 8 dims, DirectML's limit",
                "run: 9 dims",
                ("reshape-rank",),
            ),
            Cause(
                "more dims than an operator takes: a MatMul of 5, as attention in windows has",
                "run: MatMul, Trilu, Resize, DynamicQuantizeLinear and Conv",
                ("kernel-rank", "matmul-4d"),
            ),
            Cause(
                "a QuantizeLinear or DequantizeLinear of opset 21 with scales along another axis "
                "than the last, as weights quantized channel by channel have",
                "run",
                ("quantize-axis",),
            ),
            Cause(
                "a DequantizeLinear of constant integers of 4 bits without blocks",
                "run",
                ("four-bits",),
            ),
            Cause(
                "a Resize with a keep_aspect_ratio_policy",
                "run: ONNX's own tests of it",
                ("resize-mode",),
            ),
            Cause(
                "a static ConvTranspose with auto_pad=SAME_UPPER or SAME_LOWER and a stride",
                "run",
                ("same-padding",),
            ),
        ),
    ),
    Code(
        "887A0005",
        "DXGI_ERROR_DEVICE_REMOVED",
        "The GPU is gone from under the program: Windows has reset or removed it.",
        (*_HUNG, _PAST),
        _SHORTER,
    ),
    Code(
        "887A0006",
        "DXGI_ERROR_DEVICE_HUNG",
        "The GPU did not answer in time, or was given a command that it choked on; Windows has "
        "reset it.",
        _HUNG,
        _SHORTER,
    ),
    Code(
        "887A0007",
        "DXGI_ERROR_DEVICE_RESET",
        "The GPU was reset, because of this program or of another.",
        _HUNG,
        _SHORTER,
    ),
    Code(
        "887A0020",
        "DXGI_ERROR_DRIVER_INTERNAL_ERROR",
        "The GPU's driver failed inside.",
        _HUNG,
        _SHORTER,
    ),
    Code(
        "8007000E",
        "E_OUTOFMEMORY",
        "There was no memory left, on the GPU or for the GPU.",
        (
            Cause(
                "tensors that grow with the square of the length: scores of attention, and masks "
                "of their full size made again in each layer",
                "arithmetic",
                ("additive-mask",),
            ),
            Cause(
                "every shape but the session's first makes its kernels anew in each run",
                "ORT MLOperatorAuthorImpl.cpp 2511-2691",
                ("dynamic-dims",),
            ),
        ),
        "Try a smaller batch or shorter inputs, float16, and one session per process.",
    ),
    Code(
        "UnicodeDecodeError",
        "a message that Python could not read",
        "The real error is hidden: Windows words it in its own language and code page, and Python "
        "reads it as UTF-8. In most cases it is 80070057 or 8007023E.",
        (
            Cause(_ALLOWZERO, _ALLOWZERO_SOURCE, ("reshape-allowzero",)),
            Cause(
                "a 1-D ConvTranspose that has the attribute output_padding",
                "run",
                ("convtranspose-2d",),
            ),
            Cause(_STALE, "run", ("fresh-shapes",)),
            Cause(_FROZEN, "run", ("thaw",)),
        ),
        "To see it, set log_severity_level=0 in SessionOptions: the log has the number in hex. Or "
        "run the program from a console with an English display language.",
        pattern=r"unicodedecodeerror|codec can't decode",
    ),
    Code(
        "Shape mismatch attempting to re-use buffer",
        "a tensor that does not fit where it was to lie",
        "ONNX Runtime planned to put a tensor into the memory of another, and it has another size "
        "than planned (framework/execution_frame.cc 655-690). On DirectML it shows as 8007023E.",
        (
            Cause(_ALLOWZERO, _ALLOWZERO_SOURCE, ("reshape-allowzero",)),
            Cause(_STALE, "ORT#5197", ("fresh-shapes",)),
            Cause(_FROZEN, "run", ("thaw",)),
        ),
        pattern=r"re-?use buffer",
    ),
    Code(
        "Unexpected input data type",
        "an array of another type than the model's input",
        "The program gave an array of another element type than the model declares: it says "
        "'Actual' for the array and 'expected' for the model. The model is not at fault.",
        (
            Cause(
                "token ids as int32 where the model wants int64 (numpy's default on Windows was "
                "int32 before 2.0), float64 where it wants float32, masks as bool or the reverse",
                "numpy 2.0 release notes; ORT session/inference_session.cc",
            ),
        ),
        "Convert the array before the run, array.astype(...), to the type listed below.",
        pattern=r"unexpected input data type",
    ),
    Code(
        "Inferred shape and existing shape differ",
        "a shape in the file that contradicts the graph",
        "Shape inference came to another size than the file declares. Quantizers and other strict "
        "tools stop there; ONNX Runtime warns, and DirectML may end in 80070057.",
        (
            Cause(
                "value_info left over from before an edit, or written wrongly by the exporter",
                "onnx#3804, onnx#4367; run: two models with one false width each",
                ("fresh-shapes",),
            ),
            Cause(
                "a type that was left over so, after a conversion to float16",
                "run: three converted models of the zoo do not load",
                ("type-conflict",),
            ),
        ),
        pattern=r"inferred shape|existing shape|does not match expected type|incompatible dim",
    ),
    Code(
        "Failed to find node output or a constant initializer",
        "an output of the model that is gone",
        "ONNX Runtime's optimizer has removed what makes an output of the model, and no session "
        "can be made. Python's InferenceSession then prints 'EP Error' and takes the CPU instead.",
        (
            Cause(
                "an activation, such as Relu, that DirectML fuses into the operator before it, "
                "although that operator's own output is an output of the model",
                "ORT OperatorUtility.cpp; run: each pair that it lists",
                ("lost-output",),
            ),
        ),
        pattern=r"failed to find node output|producing output",
    ),
    Code(
        "DmlFusedGemm",
        "a fused operator that lacks an input",
        "DirectML made one operator of a Gemm and of the activation after it, and no session can "
        "be made of it: 'has input size 2 not in range [min=3, max=3]'. Python's InferenceSession "
        "then prints 'EP Error' and takes the CPU instead.",
        (
            Cause(
                "a Gemm without a C whose only user is an activation, such as Relu",
                "run: at each opset; a C of zero repairs it",
                ("gemm-bias",),
            ),
        ),
        pattern=r"dmlfusedgemm|input size 2 not in range \[min=3",
    ),
)

_HEX = re.compile(r"(?<![0-9a-f])(?:0x)?([0-9a-f]{8})(?![0-9a-f])", re.IGNORECASE)
_DECIMAL = re.compile(r"(?<![\w.])(-\d{9,10}|\d{10})(?![\w.])")
_NODE = re.compile(r"(?:Name:|node |node_?name:? ?)['\"]([^'\"]+)['\"]", re.IGNORECASE)


def find(text: str) -> Code | None:
    """The error that a text is or holds: a code in hex or as a number, or a pasted message.

    Example: ``8007023e``, ``0x80070057``, ``-2147024809``, or the whole line of a log.
    """
    known = {code.key: code for code in CODES}
    numbers = [x.upper() for x in _HEX.findall(text)]
    numbers += [f"{int(x) & 0xFFFFFFFF:08X}" for x in _DECIMAL.findall(text)]
    for number in numbers:
        if number in known:
            return known[number]
    for code in CODES:
        pattern = code.pattern or re.escape(code.title)
        if re.search(pattern, text, re.IGNORECASE):
            return code
    return None


def is_number(text: str) -> bool:
    """Whether a text is nothing but a code, known or not."""
    return bool(_HEX.fullmatch(text.strip()) or _DECIMAL.fullmatch(text.strip()))


def node_in(text: str) -> str | None:
    """The name of the node that a pasted message names, if it does."""
    found = _NODE.search(text)
    return found[1] if found else None
