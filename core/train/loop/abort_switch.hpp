// Makes a rank that waits for another one give up when that one has failed.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "train/loop/trainer.hpp"

namespace prun {

// Knows the communicators for as long as their owner holds the lease, and why they were aborted. Any thread
// may use it.
class AbortSwitch {
 public:
  // Lends communicators to the switch; those that come after it was pulled are aborted at once.
  static CommunicatorLease lend(const std::shared_ptr<AbortSwitch>& to, Communicators& communicators) {
    to->set(&communicators);
    return {&communicators, [to](Communicators*) { to->set(nullptr); }};
  }
  void pull(const Error& why) {
    const std::scoped_lock lock(mutex_);
    if (!reason_) reason_ = why;
    if (communicators_) communicators_->abort();
  }
  std::optional<Error> reason() const {
    const std::scoped_lock lock(mutex_);
    return reason_;
  }

 private:
  void set(Communicators* communicators) {
    const std::scoped_lock lock(mutex_);
    communicators_ = communicators;
    if (reason_ && communicators_) communicators_->abort();
  }

  mutable std::mutex mutex_;
  Communicators* communicators_ = nullptr;
  std::optional<Error> reason_;
};

}  // namespace prun
