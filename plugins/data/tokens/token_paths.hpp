// Finds, from the path that the user wrote, the files that are meant.
#pragma once

#include <string>
#include <vector>

namespace prun::tokens {

enum class Format { automatic, megatron, llmc };

struct TokenFiles {
  Format format = Format::llmc;  // is megatron or llmc
  // Megatron has the .idx, then the .bin; llm.c has the shards, ordered by name byte by byte.
  std::vector<std::string> files;
};

// Finds the files of `path`, which is a .idx or .bin, a Megatron prefix without either ending, a folder whose
// .bin files are llm.c shards, or a pattern with * ? [ ] that matches such shards. A .bin with a .idx beside
// it is a Megatron set. Throws not_found when nothing is there and bad_input when the meaning is not clear.
TokenFiles find_token_files(const std::string& path, Format format);

}  // namespace prun::tokens
