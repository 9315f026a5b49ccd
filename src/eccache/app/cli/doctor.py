"""`eccache doctor`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eccache.app.cli.failure import EXIT_FOUND, failures_explained
from eccache.app.cli.output import columns, counted, print_json
from eccache.app.cli.variables import heed_variables

if TYPE_CHECKING:
    from eccache.app.doctor import Finding, Subject


@click.command("doctor")
@click.option(
    "--path",
    type=click.Path(readable=False, path_type=Path),
    default=None,
    help="Directory of the entries. [default: the configured local_disk]",
)
@click.option("--model", default=None, help="Model that is served; short for `-- MODEL`.")
@click.option(
    "--diff",
    nargs=2,
    metavar="A B",
    default=None,
    help="Say in what two namespaces differ. Each is a fingerprint, or its start, or a namespace.json.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings too.")
@click.option(
    "--no-self-test",
    is_flag=True,
    help="Write nothing, not even for a moment, and ask no remote tier.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    path: Path | None,
    model: str | None,
    diff: tuple[str, str] | None,
    arguments: tuple[str, ...],
    *,
    strict: bool,
    no_self_test: bool,
    as_json: bool,
) -> None:
    """Say why there are no hits, and what else is wrong, each with cause and remedy.

    ARGUMENTS are those of `vllm serve`, or its whole command line with the variables before it, behind
    `--`:

    \b
        eccache doctor -- MODEL --ec-transfer-config '{...}'

    Without them configuration, directory and machine are checked, but no server's arguments. A model
    must be at hand as for a start. Nothing is changed: the self-test removes the entry that it stores, and
    the remote tier is asked for an entry that is not there.

    Exits with 1 when an error was found, or with --diff a difference; with 3 when it could not look.
    """  # noqa: D301 - click keeps the lines behind the control character as they are
    logging.getLogger("eccache").addHandler(logging.NullHandler())  # the findings say it
    with failures_explained():
        settings: dict[str, Any] = {} if path is None else {"local_disk": str(path.absolute())}
        if diff is not None:
            sys.exit(_print_difference(diff, settings, as_json=as_json))
        heed_variables(arguments)
        from eccache.app.doctor import Severity, examine
        from eccache.app.doctor.gather import gather

        given = (*(() if model is None else (model,)), *arguments)
        if given:
            click.echo("asking vLLM about this server; it takes some seconds to load", err=True)
        subject = gather(given, settings, self_test=not no_self_test)
        findings = examine(subject)
        if as_json:
            print_json(_document(subject, findings))
        else:
            _print_for_people(subject, findings)
        bad = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
        sys.exit(EXIT_FOUND if any(finding.severity in bad for finding in findings) else 0)


def _document(subject: Subject, findings: tuple[Finding, ...]) -> dict[str, object]:
    from eccache.app.doctor import Severity

    severities = [finding.severity for finding in findings]
    return {
        "errors": severities.count(Severity.ERROR),
        "warnings": severities.count(Severity.WARNING),
        "findings": [
            {
                "check": finding.check,
                "severity": finding.severity.value,
                "summary": finding.summary,
                "cause": finding.cause,
                "remedy": finding.remedy,
            }
            for finding in findings
        ],
        "configuration": [
            {"name": name, "value": value, "source": source}
            for name, value, source in _configuration(subject)
        ],
        "root": subject.root,
        "namespace": None
        if subject.namespace is None
        else {
            "fingerprint": subject.namespace.fingerprint,
            "ingredients": dict(subject.namespace.ingredients),
        },
        "versions": dict(subject.machine.versions),
    }


def _configuration(subject: Subject) -> list[tuple[str, str, str]]:
    return [] if subject.loaded is None else subject.loaded.rows()


def _print_for_people(subject: Subject, findings: tuple[Finding, ...]) -> None:
    from eccache.app.doctor import Severity

    if rows := _configuration(subject):
        click.secho("Effective configuration", bold=True)
        click.echo(columns([["setting", "value", "from"], *map(list, rows)]))
        click.echo()
    if subject.namespace is not None:
        click.secho(f"Namespace {subject.namespace.fingerprint}", bold=True)
        ingredients = sorted(subject.namespace.ingredients.items())
        click.echo(columns([[name, value or "-"] for name, value in ingredients]))
        click.echo()
    click.secho("Findings", bold=True)
    colours = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.ERROR: "red"}
    width = max((len(finding.check) for finding in findings), default=0)
    indent = " " * (len("warning") + 2)
    for finding in findings:
        mark = click.style(
            finding.severity.value.ljust(len("warning")), fg=colours[finding.severity]
        )
        click.echo(f"{mark}  {finding.check.ljust(width)}  {finding.summary}")
        if finding.cause:
            click.echo(f"{indent}{'cause'.rjust(width)}  {finding.cause}")
        if finding.remedy:
            click.echo(f"{indent}{'remedy'.rjust(width)}  {finding.remedy}")
    severities = [finding.severity for finding in findings]
    errors, warnings = severities.count(Severity.ERROR), severities.count(Severity.WARNING)
    click.echo(
        f"\n{counted(errors, 'error', 'errors')}, {counted(warnings, 'warning', 'warnings')}"
    )


def _print_difference(diff: tuple[str, str], settings: dict[str, Any], *, as_json: bool) -> int:
    from eccache.app.bootstrap.stores import operator_root
    from eccache.app.bootstrap.upkeep import stored_namespaces
    from eccache.app.config import load_config
    from eccache.app.doctor.namespaces import differences, find_namespace

    stored = stored_namespaces(operator_root(load_config(**settings)))
    first, second = (find_namespace(name, stored) for name in diff)
    found = differences(first.ingredients, second.ingredients)
    if as_json:
        print_json(
            {
                "first": first.fingerprint,
                "second": second.fingerprint,
                "differences": [
                    {"name": one.name, "first": one.first, "second": one.second} for one in found
                ],
            }
        )
    elif found:
        heading = ["ingredient", first.fingerprint, second.fingerprint]
        rows = [[one.name, _or_dash(one.first), _or_dash(one.second)] for one in found]
        click.echo(columns([heading, *rows]))
    else:
        click.echo(f"{first.fingerprint} and {second.fingerprint} have the same ingredients")
    return EXIT_FOUND if found else 0


def _or_dash(value: str | None) -> str:
    return "(none)" if value is None else value or "(empty)"
