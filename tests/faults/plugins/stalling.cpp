// Samples by formula; after a few, one rank's reading never returns, as from a file server that is gone.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "prun/plugin.hpp"

namespace prun {
namespace {

constexpr int reads_before = 28;
constexpr std::int64_t samples = 1000, vocab = 61;

// As whatever launcher there is tells it.
const char* own_rank() {
  for (const char* name : {"PRUN_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name)) return rank;
  return nullptr;
}

class Stalling final : public Data {
 public:
  explicit Stalling(const Options& options) : victim_(std::to_string(options.integer("rank"))) {}

  DataInfo open(std::int64_t seq) override {
    seq_ = seq;
    return {samples, samples * seq, vocab};
  }
  void read(std::int64_t index, std::int32_t* tokens, std::int32_t* targets) override {
    const char* rank = own_rank();
    if (rank && rank == victim_ && reads_++ == reads_before) {
      std::fprintf(stderr, "rank %s reads no more\n", rank);
      for (;;) ::pause();
    }
    for (std::int64_t i = 0; i < seq_; ++i) {
      tokens[i] = static_cast<std::int32_t>((index * 31 + i * 5) % vocab);
      targets[i] = static_cast<std::int32_t>((index * 31 + (i + 1) * 5) % vocab);
    }
  }

 private:
  std::string victim_;
  std::int64_t seq_ = 0;
  int reads_ = 0;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(data, prun::Stalling, "stalling", "0.1.0", "Data that stops coming on one rank", "",
            "path | string | | | Not read; the recipe of the tests has it\n"
            "rank | int | 0 | 0.. | Where it stops\n");
