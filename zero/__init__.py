"""AlphaGo Zero as a workflow-orchestrated project whose every generation can be rebuilt and audited."""

__version__ = "0.1.0"
