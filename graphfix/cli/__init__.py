"""The command line: the only place that imports click and rich, and that knows exit codes.

0 is done, 1 is findings or a failed verdict, 2 is wrong usage or bad input, 130 is Ctrl-C.
Data goes to stdout, remarks and progress to stderr.
"""

import logging
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path

import click

from graphfix.cli import _config, _interrupts, _options, _terminal
from graphfix.cli.bench import bench
from graphfix.cli.check import check
from graphfix.cli.completion import completion
from graphfix.cli.demo import demo
from graphfix.cli.explain import explain
from graphfix.cli.merge import merge
from graphfix.cli.padded import padded
from graphfix.cli.passes import passes
from graphfix.cli.plan import plan
from graphfix.cli.reduce import reduce
from graphfix.cli.run import run
from graphfix.cli.ship import ship
from graphfix.cli.verify import verify
from graphfix.cli.zoo import zoo
from graphfix.errors import FaultError, GraphfixError, PassError, VerificationError
from graphfix.version import __version__
from graphfix.wording import clean_text

DONE, FOUND, BAD, INTERRUPTED = 0, 1, 2, 130
_NOTHING = "interrupted; nothing was written"
_HELP = {"help_option_names": ["-h", "--help"]}
_NO_THREAD = "can't start new thread"  # a RuntimeError of Python
# Verbs and options that were there once, and what does the same.
_GONE = {
    "probe": "'padded MODEL' measures what padding changes, 'check MODEL --padding' says at which "
    "node it leaks, and 'verify A B' names the first tensor that differs",
    "bench --bucket": "ship makes a container of each size, and bench --ship times clips in them",
    "bench --io-binding": "bench --ship keeps the states of a stream on the device",
    "check --axis": "say -p ilens-mask:axis=INPUT.AXIS",
    "check --fix": "graphfix run repairs and verifies, with -p and what is named",
    "check --from": "say -p ilens-mask:axis=INPUT.AXIS:from=INPUT",
    "check --run": "graphfix verify MODEL MODEL --ep dml runs it, padded measures",
    "padded --seeds": "graphfix.padded(model, seeds=5) tries as many contents",
    "plan --against": "graphfix zoo --ep dml says which node ran where",
    "plan --before-after": "plan what run has written",
}
# Options that people know from onnxsim and onnxslim, in any spelling, and what does that here.
_FIXED_SIZES = "-p directml,fix-dims:NAME=SIZE gives the dim NAME of the inputs a size"
_ELSEWHERE = {
    "--input-shape": _FIXED_SIZES,
    "--input-shapes": _FIXED_SIZES,
    "--overwrite-input-shape": _FIXED_SIZES,
    "--overwrite-input-shapes": _FIXED_SIZES,
    "--test-input-shape": "--dims NAME=SIZE says at which sizes to verify",
    "--skip-optimization": "--exclude NODE leaves a node out, and -p names what is done",
    "--skip-fusion-patterns": "-p names what is done: the profile directml fuses nothing",
    "--model-check": "run verifies by itself",
    "--dtype": "-p float16 converts, with what must stay in float32",
}


class _Group(click.Group):
    """A group of verbs that blames the model where the model is to blame.

    An unexpected error at a model that ONNX Runtime rejects becomes a ModelError with its reason.
    """

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if instead := _GONE.get(args[0]):
            ctx.fail(f"{args[0]} is no verb any more; {instead}.")
        if args[0] not in self.commands and (Path(args[0]).is_file() or args[0].endswith(".onnx")):
            ctx.fail(f"{args[0]} is a model; to repair it: graphfix run {' '.join(args)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            if instead := _GONE.get(f"{error.ctx and error.ctx.info_name} {error.option_name}"):
                message = f"{error.option_name} is no option any more; {instead}."
                raise click.UsageError(message, error.ctx) from error
            if instead := _ELSEWHERE.get(error.option_name.replace("_", "-")):
                message = f"{error.option_name} is no option here; {instead}."
                raise click.UsageError(message, error.ctx) from error
            raise
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as error:
            if isinstance(error, GraphfixError | OSError | MemoryError):
                raise
            from graphfix.runtime.own_errors import own_errors

            with own_errors([ctx.meta.get(_options.MODEL)], ctx.invoked_subcommand or ""):
                raise


@click.group(cls=_Group, invoke_without_command=True, context_settings=_HELP)
@click.version_option(__version__, prog_name="graphfix")
@click.pass_context
def group(context: click.Context) -> None:
    """Repair exported ONNX graphs for DirectML, and prove that the numbers did not change.

    Exit codes: 0 done, 1 findings or a failed verdict, 2 wrong usage or bad input.
    """
    context.color = _terminal.colour_preference()
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
    else:
        _config.apply_defaults(context, group.commands[context.invoked_subcommand])


_READING = (check, plan, verify, padded, bench, zoo, passes, explain, completion)
for _verb in (run, ship, demo, merge, reduce, *_READING):
    group.add_command(_options.quiet(_verb))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; every expected error becomes a sentence."""
    _terminal.open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # A Windows pipe may be cp1252, and a tensor may be named in any script.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    _interrupts.install_handlers()
    remarks, showing = _terminal.RemarkHandler(), warnings.showwarning
    # Of every library: what they warn of has names from the model in it, and they print it raw.
    logging.getLogger().addHandler(remarks)
    warnings.showwarning = _terminal.show_warning
    try:
        code = group.main(arguments, prog_name="graphfix", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except (click.Abort, KeyboardInterrupt) as error:
        return _report_interrupt(error)
    except SystemExit:  # click's end where the pipe is closed, as head does
        return DONE
    except Exception as error:
        return _report_exception(error)
    finally:
        logging.getLogger().removeHandler(remarks)
        warnings.showwarning = showing
    return code if isinstance(code, int) else DONE


def _report_interrupt(error: BaseException) -> int:
    """Print what was written before the signal came, and return the exit code.

    That is what had its name by then, and not what went with a folder of its own. click makes an
    Abort of what it hears.
    """
    abort_args = (error.__cause__ or error).args
    written = [x for x in abort_args if isinstance(x, str) and Path(x).exists()]
    _terminal.print_remark(f"interrupted; written: {', '.join(written)}" if written else _NOTHING)
    return DONE if written else INTERRUPTED


def _report_exception(error: Exception) -> int:
    """Print an exception as a sentence, with its traceback if it is a fault; return 2."""
    if _NO_THREAD in str(error):
        return _report_error(
            "the system starts no more threads for this user; nothing was written. End some "
            "processes, or raise the limit (ulimit -u)"
        )
    match error:
        case click.UsageError():
            command = error.ctx.command_path if error.ctx is not None else "graphfix"
            sentence = error.format_message()
            end = "" if sentence.endswith((".", "?", "?)")) else "."
            return _report_error(f"{sentence}{end} Try '{command} --help'.")
        case click.ClickException():
            return _report_error(error.format_message())
        case PassError():  # its traceback is what we need
            _print_traceback(error.__cause__ or error)
            return _report_error(f"{error}; nothing was written. Please report the lines above")
        case FaultError():
            return _report_fault(error.__cause__ or error)
        case VerificationError():
            return _terminal.report_failure(f"{error}; nothing was written")
        case GraphfixError():
            return _report_error(str(error))
        case MemoryError():
            return _report_error(
                "out of memory; nothing was written. Try smaller sizes with --dims"
            )
        case OSError():
            return _report_os_error(error)
    return _report_fault(error)


def _report_fault(error: BaseException) -> int:
    """Print an error of ours, or of a plugin, with its traceback; return 2."""
    _print_traceback(error)
    problem = f"{type(error).__name__}: {error}"
    return _report_error(f"unexpected {problem}; this is a fault, please report the lines above")


def _report_os_error(error: OSError) -> int:
    _terminal.silence_stream()  # perhaps it was the standard output
    if error.filename is None and not _has_current_folder():
        return _report_error("the current folder is no more; change to one that is there")
    where = f"{error.filename}: " if error.filename is not None else ""
    return _report_error(f"{where}{error.strerror or error}")


def _print_traceback(error: BaseException) -> None:
    click.echo(clean_text("".join(traceback.format_exception(error))), err=True, nl=False)


def _has_current_folder() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True


def _report_error(message: str) -> int:
    _terminal.print_remark(f"error: {message}")
    return BAD
