// Makes samples by formula, of which between one and all targets count, like documents of uneven length.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class Ragged final : public Data {
 public:
  explicit Ragged(const Options& options) : vocab_(options.integer("vocab")) {}

  DataInfo open(std::int64_t seq) override {
    seq_ = seq;
    return {1000, 1000 * seq, vocab_};
  }
  void read(std::int64_t index, std::int32_t* tokens, std::int32_t* targets) override {
    const std::int64_t counted = 1 + index * 7 % seq_;
    for (std::int64_t i = 0; i < seq_; ++i) {
      tokens[i] = token(index, i);
      targets[i] = i < counted ? token(index, i + 1) : -1;
    }
  }

  // Targets take the roles in turn.
  void roles(std::int64_t index, std::uint8_t* roles) override {
    for (std::int64_t i = 0; i < seq_; ++i) roles[i] = static_cast<std::uint8_t>((index + i) % 2);
  }

 private:
  std::int32_t token(std::int64_t index, std::int64_t position) const {
    return static_cast<std::int32_t>((index * 31 + position * position * 5 + position) % vocab_);
  }

  std::int64_t vocab_, seq_ = 0;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(data, prun::Ragged, "ragged", "0.1.0", "Samples with uneven numbers of targets", "roles=even,odd",
            "vocab | int | 61 | 2.. | Tokens are below this\n");
