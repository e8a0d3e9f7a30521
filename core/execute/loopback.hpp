// Gives communicators to a rank that runs without the others, for measuring: each exchange leaves numbers of
// the right size behind. A gather repeats the rank's own part, a sum is what it gave itself, and what only
// another rank could send are small numbers of no meaning.
#pragma once

#include <vector>

#include "execute/executor.hpp"

namespace prun {

class Loopback final : public CommInterface {
 public:
  // Makes one communicator for each queue of the plan that communicates.
  Loopback(const Plan& plan, const Mesh& mesh, std::int64_t rank);

  std::vector<QueueComm> queues();

  Status info(CommInfo* info) noexcept override;
  Status create(const CommGroup& group, Communicator* communicator) noexcept override;
  Status destroy(Communicator communicator) noexcept override;
  Status attach_memory(Communicator communicator, void* base, std::int64_t bytes) noexcept override;
  Status detach_memory(Communicator communicator) noexcept override;
  Status connect(Communicator communicator, const CommOp* ops, std::int64_t count,
                 void* stream) noexcept override;
  Status prepare(Communicator communicator, const CommOp* ops, std::int64_t count,
                 void* stream) noexcept override;
  Status start(Communicator communicator, const CommOp* ops, std::int64_t count,
               void* stream) noexcept override;
  Status finish(Communicator communicator) noexcept override;
  Status abort(Communicator communicator) noexcept override;
  Status counters(Communicator communicator, CommCounters* counters) noexcept override;
  Status check(Communicator communicator) noexcept override;
  Status needs(const CommOp& op, std::int32_t rank, std::int32_t size, CommNeeds* needs) noexcept override;
  Status examine(Text*) noexcept override { return {}; }

 private:
  std::vector<std::int64_t> members_;  // members by queue; a communicator points to its number
};

}  // namespace prun
