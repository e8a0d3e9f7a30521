// Reads a Hugging Face tokenizer.json, which others wrote: nothing in it is trusted.
#pragma once

#include "tokenizer/tokenizer.hpp"

namespace prun {

// Throws bad_input for a file that is damaged, and for one that asks for what prun does not have.
TokenizerTables read_tokenizer_json(std::string_view json, const std::string& source);

}  // namespace prun
