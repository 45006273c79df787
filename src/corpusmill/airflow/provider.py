"""What Airflow asks of a provider: its connections, operators, links, decorators and plugin, as data.

Airflow reads it at each start of any of its processes, so that this module imports nothing.
"""

from __future__ import annotations

from typing import Any

_KEY_HELP = "The API key; sent as a bearer token and never shown."
_MODEL = {
    "label": "Model",
    "description": "The model to ask where a task names none.",
    "schema": {"type": ["string", "null"]},
}
_IDENTITY = {
    "label": "Identity",
    "description": "Which model answers, where several routes lead to the same one: they then share stored answers.",
    "schema": {"type": ["string", "null"]},
}
_CONTEXT = {
    "label": "Context size (tokens)",
    "description": "Prompt and answer together.",
    "schema": {"type": ["integer", "null"], "minimum": 1},
}
_STREAM = {
    "label": "Stream",
    "description": "Ask for answers in pieces; the answers are the same.",
    "schema": {"type": ["boolean", "null"], "default": False},
}
_HEADERS = {
    "label": "Headers (JSON)",
    "description": "Headers to send with each request, as a JSON object.",
    "schema": {"type": ["string", "null"], "format": "password"},
}
_HIDDEN = ["schema", "login", "port", "extra"]


def provider_info() -> dict[str, Any]:
    """Give the dictionary of Airflow's provider_info.schema.json."""
    return {
        "package-name": "corpusmill",
        "name": "corpusmill",
        "description": "Map columns of tables through a chat-completion endpoint, cached and resumable.",
        "integrations": [
            {
                "integration-name": "corpusmill",
                "external-doc-url": "https://pypi.org/project/corpusmill/",
                "tags": ["service"],
            }
        ],
        "operators": [
            {
                "integration-name": "corpusmill",
                "python-modules": [
                    "corpusmill.airflow.operator",
                    "corpusmill.airflow.shards",
                    "corpusmill.airflow.transform",
                ],
            }
        ],
        "hooks": [{"integration-name": "corpusmill", "python-modules": ["corpusmill.airflow.hook"]}],
        "triggers": [
            {
                "integration-name": "corpusmill",
                "python-modules": ["corpusmill.airflow.trigger", "corpusmill.airflow.transform_trigger"],
            }
        ],
        "connection-types": [
            {
                "connection-type": "sambanova",
                "hook-class-name": "corpusmill.airflow.hook.SambaNovaHook",
                "hook-name": "SambaNova Cloud",
                "ui-field-behaviour": {
                    "hidden-fields": _HIDDEN,
                    "relabeling": {"password": "API key", "host": "Base URL"},
                    "placeholders": {
                        "host": "https://api.sambanova.ai/v1 (left out, it is this one)",
                        "password": _KEY_HELP,
                    },
                },
                "conn-fields": {
                    "model": _MODEL,
                    "identity": _IDENTITY,
                    "context_tokens": _CONTEXT,
                    "stream": _STREAM,
                },
            },
            {
                "connection-type": "openai_compatible",
                "hook-class-name": "corpusmill.airflow.hook.OpenAICompatibleHook",
                "hook-name": "OpenAI-compatible endpoint",
                "ui-field-behaviour": {
                    "hidden-fields": _HIDDEN,
                    "relabeling": {"password": "API key", "host": "Base URL"},
                    "placeholders": {"host": "https://my-server.example/v1", "password": _KEY_HELP},
                },
                "conn-fields": {
                    "model": _MODEL,
                    "identity": _IDENTITY,
                    "context_tokens": _CONTEXT,
                    "stream": _STREAM,
                    "headers": _HEADERS,
                },
            },
        ],
        "task-decorators": [{"name": "enrich", "class-name": "corpusmill.airflow.decorator.enrich_task"}],
        "extra-links": [
            "corpusmill.airflow.link.ReportLink",
            "corpusmill.airflow.transform_link.TransformJobLink",
        ],
        "plugins": [{"name": "corpusmill", "plugin-class": "corpusmill.airflow.plugin.CorpusmillPlugin"}],
        "config": {
            "corpusmill": {
                "description": "What the corpusmill provider adds to Airflow's pages.",
                "options": {
                    "report_tab": {
                        "description": "Show the tab with the enrichment report on the page of each task instance.",
                        "version_added": None,
                        "type": "boolean",
                        "example": None,
                        "default": "True",
                    }
                },
            }
        },
    }
