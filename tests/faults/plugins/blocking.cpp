// A comm that moves nothing. On the rank that PRUN_TEST_BLOCK names, start() never returns; on the one that
// PRUN_TEST_SKIP names, finish() returns at once. On the others it waits until it is aborted.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "prun/plugin.hpp"

namespace prun {
namespace {

class Blocking final : public Comm {
 public:
  explicit Blocking(const Options&) {}

  CommInfo info() override {
    CommInfo info;
    info.name = "blocking";
    info.host_memory = true;
    return info;
  }
  Communicator create(const CommGroup& group) override {
    rank_ = group.rank;
    return this;
  }
  void destroy(Communicator) override {}
  void start(Communicator, const CommOp*, std::int64_t, void*) override {
    if (!is_this_rank("PRUN_TEST_BLOCK")) return;
    std::fprintf(stderr, "rank %d blocks in start()\n", rank_);
    for (;;) ::pause();
  }
  void finish(Communicator) override {
    if (is_this_rank("PRUN_TEST_SKIP")) return;
    while (!aborted_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    throw_error(ErrorCode::comm_failed, "comm blocking: aborted");
  }
  void abort(Communicator) override { aborted_ = true; }
  CommCounters counters(Communicator) override { return {}; }
  CommNeeds needs(const CommOp&, std::int32_t, std::int32_t) override { return {}; }

 private:
  bool is_this_rank(const char* variable) const {
    const char* number = std::getenv(variable);
    return number && std::to_string(rank_) == number;
  }

  std::int32_t rank_ = 0;
  std::atomic<bool> aborted_ = false;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(comm, prun::Blocking, "blocking", "0.1.0", "Blocks for ever or skips, on one rank", "", "");
