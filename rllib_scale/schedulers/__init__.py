"""Decision rules without learning, behind the one interface that trained policies share."""
