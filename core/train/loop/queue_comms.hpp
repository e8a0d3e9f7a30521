// Gives the queues of a rank's plans their communicators. A rank that runs without the others gets some that
// answer by themselves.
#pragma once

#include <vector>

#include "execute/communicators.hpp"
#include "execute/loopback.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

class QueueComms {
 public:
  // `communicators` is null for a rank without others.
  QueueComms(const Assembly& assembly, Communicators* communicators)
      : assembly_(assembly),
        communicators_(communicators),
        loopback_(assembly.plan(), assembly.mesh(), assembly.rank()) {}

  // Returns the communicators of the full step's plan, by queue.
  std::vector<QueueComm> of_full_step() {
    return communicators_ ? communicators_->queues() : loopback_.queues();
  }
  // Returns those of a plan that is over the full step's: it has no queue that the full one lacks.
  std::vector<QueueComm> of(const Plan& plan);

 private:
  const Assembly& assembly_;
  Communicators* communicators_;
  Loopback loopback_;
};

}  // namespace prun
