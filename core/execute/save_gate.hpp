// How far the save under way is: what holds back whoever would overwrite what it has not read yet. A save
// takes as many steps as it takes, and those that it does not hold back are not looked at: so waits for it
// count the saves that were begun, not steps.
#pragma once

#include <cstdint>

#include "execute/ticket.hpp"

namespace prun {

class SaveGate {
 public:
  // `reads` are the plan's.
  explicit SaveGate(std::size_t reads) : reads_(reads), ticket_(counter_, false) {}
  SaveGate(const SaveGate&) = delete;
  SaveGate& operator=(const SaveGate&) = delete;

  // Says whether steps may go on beside a save.
  bool holds_back() const { return reads_ > 0; }
  // While no step runs, and once the save before has been let by: from now on nothing is read.
  void close() { ++begun_; }
  // By the saver: this read and all before it are done. Reads grow.
  void pass(std::int32_t read) noexcept { ticket_.publish(ticket_of(read)); }
  // Nothing is to be read any more.
  void open() noexcept {
    if (begun_ > 0) ticket_.publish(begun_ * reads_);
  }

  // By whoever runs queues: holds it until the read is done, if a save is under way.
  void await(std::int32_t read) noexcept {
    if (begun_ > 0) ticket_.await(ticket_of(read));
  }
  // It grows for as long as the save gets on.
  std::uint64_t progress() const noexcept { return counter_.load(); }

 private:
  std::uint64_t ticket_of(std::int32_t read) const {
    return (begun_ - 1) * reads_ + static_cast<std::uint64_t>(read) + 1;
  }

  const std::uint64_t reads_;
  std::uint64_t begun_ = 0;  // written while no step runs: starting one tells its queues
  Counter counter_{0};
  Ticket ticket_;
};

}  // namespace prun
