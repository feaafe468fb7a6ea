"""Miss ratios of libCacheSim: TRACE SLOTS POLICY... -> a line `POLICY RATIO` each. The trace is oracleGeneral."""

import sys

import libcachesim as peer

trace, slots, *policies = sys.argv[1:]
for policy in policies:
    reader = peer.TraceReader(
        trace=trace,
        trace_type=peer.TraceType.ORACLE_GENERAL_TRACE,
        reader_init_params=peer.ReaderInitParam(ignore_obj_size=True),
    )
    ratio, _ = getattr(peer, policy)(cache_size=int(slots)).process_trace(reader)
    print(policy, repr(ratio))
