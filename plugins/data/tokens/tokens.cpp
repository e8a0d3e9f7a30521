// Implements the plugin `data.tokens`: it maps token files of Megatron and llm.c into memory.
#include "prun/plugin.hpp"
#include "tokens_data.hpp"

PRUN_PLUGIN(data, prun::tokens::TokensData, "tokens", "0.1.0",
            "Memory-mapped token files of Megatron and llm.c", "also=megatron,llmc,bin,memmap,indexed",
            "path | string | required | | A .bin, a .idx, a Megatron prefix, or a folder or glob pattern of "
            "llm.c shards\n"
            "format | choice | auto | auto, megatron, llmc | File format; auto: Megatron if there is a .idx "
            "next to the file, else llm.c\n"
            "index | choice | auto | auto, full | How a .idx is checked; full: every sequence; auto: samples "
            "of a huge one\n");
