// Implements the plugin `data.tokens`: it maps token files of Megatron and llm.c into memory.
#include "prun/plugin.hpp"
#include "tokens_data.hpp"

PRUN_PLUGIN(
    data, prun::tokens::TokensData, "tokens", "0.1.0", "Memory-mapped token files of Megatron and llm.c",
    "also=megatron,llmc,bin,memmap,indexed",
    "path | string | required | | A .bin, a .idx, a Megatron prefix, or a folder or pattern of llm.c shards\n"
    "format | choice | auto | auto, megatron, llmc | auto: Megatron where a .idx lies beside, else llm.c\n"
    "index | choice | auto | auto, full | full: check every sequence of a .idx, not samples of a huge one\n");
