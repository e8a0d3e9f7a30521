// Reads samples of a token set: sample i is tokens [i * seq, i * seq + seq] of the concatenated stream, the
// last of which is only a target. Neighbours share one token; sequence and shard borders are not special.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "megatron_index.hpp"
#include "mmap_file.hpp"
#include "prun/data.hpp"
#include "token_paths.hpp"
#include "token_stream.hpp"

namespace prun::tokens {

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
