"""dbt's adapter for LakeVilla (``type: lakevilla`` in a profile)."""

from dbt.adapters.base import AdapterPlugin
from dbt.adapters.lakevilla.credentials import LakeVillaCredentials
from dbt.adapters.lakevilla.impl import LakeVillaAdapter
from dbt.include import lakevilla

Plugin = AdapterPlugin(
    adapter=LakeVillaAdapter,  # type: ignore[arg-type]
    credentials=LakeVillaCredentials,
    include_path=lakevilla.PACKAGE_PATH,
)
