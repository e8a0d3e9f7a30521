// Reads samples of a token set: sample i is tokens [i * seq, i * seq + seq] of the concatenated stream, the
// last of which is only a target. Neighbours share one token; sequence and shard borders are not special.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "megatron_index.hpp"
#include "prun/data.hpp"
#include "token_stream.hpp"

namespace prun::tokens {

// ------------------------------------------------------------------- token paths
// Finds, from the path that the user wrote, the files that are meant.

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

// ------------------------------------------------------------------- tokens data

class TokensData final : public Data {
 public:
  explicit TokensData(const Options& options);
  DataInfo open(std::int64_t seq) override;
  void read(std::int64_t index, std::int32_t* tokens, std::int32_t* targets) override;

 private:
  void open_megatron(const TokenFiles& set);
  void open_llmc(const TokenFiles& set);
  void expect_whole(std::uint64_t first, std::uint64_t last) const;  // checks the files of these tokens

  std::string path_;
  Format format_;
  std::uint64_t scan_limit_;
  std::vector<MappedFile> files_;  // are borrowed by the stream and the index
  std::optional<MegatronIndex> index_;
  std::optional<TokenStream> stream_;
  std::int64_t seq_ = 0;
  std::int64_t samples_ = 0;
};

}  // namespace prun::tokens
