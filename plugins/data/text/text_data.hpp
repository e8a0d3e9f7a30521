// Takes bytes as tokens: sample i reads the corpus from byte i * seq, and its targets are one byte further
// on.
#pragma once

#include <string>

#include "corpus.hpp"
#include "prun/data.hpp"

namespace prun::text {

class TextData final : public Data {
 public:
  explicit TextData(const Options& options);
  DataInfo open(std::int64_t seq) override;
  void read(std::int64_t index, std::int32_t* tokens, std::int32_t* targets) override;

 private:
  CorpusRules rules_;
  std::string corpus_;
  std::int64_t seq_ = 0;
  std::int64_t samples_ = 0;
};

}  // namespace prun::text
