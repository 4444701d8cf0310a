"""Writes the PrometheusRule of the production overlay and of the chart from deploy/monitoring/rules.yaml.

    deploy/monitoring/write_rule.py
"""

import os

HERE = os.path.dirname(os.path.abspath(__file__))
HEAD = """# Written by deploy/monitoring/write_rule.py.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: cairn
  labels: {app.kubernetes.io/name: cairn}
spec:
"""


def prometheus_rule():
    with open(os.path.join(HERE, "rules.yaml"), encoding="utf-8") as f:
        lines = [line for line in f.read().splitlines() if not line.startswith("#")]
    return HEAD + "".join(f"  {line}\n" for line in lines)


def in_chart():
    """The same as a template of Helm, which must not take Prometheus' braces for its own."""
    return f"{{{{- if .Values.monitoring }}}}\n{{{{`{prometheus_rule()}`}}}}\n{{{{- end }}}}\n"


if __name__ == "__main__":
    for path, text in (
        ("../kubernetes/overlays/production/rules.yaml", prometheus_rule()),
        ("../helm/cairn/templates/rules.yaml", in_chart()),
    ):
        with open(os.path.join(HERE, path), "w", encoding="utf-8") as out:
            out.write(text)
