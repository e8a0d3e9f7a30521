// A ring between the engine and a real one, which lets transfers go wrong: every so many once, or all from
// one on.
#pragma once

#include <cerrno>
#include <deque>
#include <random>
#include <string_view>
#include <utility>

#include "nvme/ring.hpp"
#include "prun/error.hpp"

namespace prun::nvme {

enum class Fault { none, error, shortened, late, reordered, full };

struct Faults {
  Fault what = Fault::none;
  int error = 0;
  std::int64_t every = 7;  // of the transfers that are added
  bool for_good = false;   // all from that one on
};

// "", "eio", "enospc", "eintr", "eagain", "short", "late", "reordered", "full"; with "!" behind it, for good.
inline Faults faults_of(std::string_view text) {
  Faults faults;
  faults.for_good = text.ends_with("!");
  if (faults.for_good) text.remove_suffix(1);
  constexpr std::pair<std::string_view, Faults> known[] = {{"", {}},
                                                           {"eio", {Fault::error, EIO}},
                                                           {"enospc", {Fault::error, ENOSPC}},
                                                           {"eintr", {Fault::error, EINTR}},
                                                           {"eagain", {Fault::error, EAGAIN}},
                                                           {"short", {Fault::shortened}},
                                                           {"late", {Fault::late}},
                                                           {"reordered", {Fault::reordered}},
                                                           {"full", {Fault::full}}};
  for (const auto& [name, fault] : known)
    if (name == text) {
      faults.what = fault.what;
      faults.error = fault.error;
      return faults;
    }
  throw_error(ErrorCode::bad_input, "no fault is called '", text, "'");
}

class FaultyRing final : public Ring {
 public:
  FaultyRing(std::unique_ptr<Ring> real, Faults faults) : real_(std::move(real)), faults_(faults) {}

  std::string know(std::span<std::byte> memory) override { return real_->know(memory); }

  bool add(const Transfer& transfer) override {
    if (!strikes(transfer)) return real_->add(transfer);
    switch (faults_.what) {
      case Fault::error: made_up_.push_back({transfer.tag, -faults_.error}); return true;
      case Fault::full: return false;
      case Fault::shortened: {
        Transfer half = transfer;
        half.bytes = faults_.for_good ? 0 : transfer.bytes / 2 / 4096 * 4096;  // blocks of any drive
        return real_->add(half.bytes > 0 ? half : transfer);
      }
      case Fault::late: late_.insert(late_.end(), transfer.tag); return real_->add(transfer);
      case Fault::reordered:
      case Fault::none: return real_->add(transfer);
    }
    return false;
  }

  void wait(std::chrono::microseconds at_most, std::vector<Ended>& ended) override {
    std::vector<Ended> real = std::exchange(made_up_, {});
    real_->wait(
        real.empty() ? std::min(at_most, std::chrono::microseconds(2000)) : std::chrono::microseconds(0),
        real);
    for (const Ended& one : real) {
      const bool late = std::erase(late_, one.tag) > 0;
      if (faults_.what == Fault::reordered || late)
        held_.push_back({one, late && faults_.for_good ? std::int64_t{1} << 40 : waits_ + soon()});
      else
        ended.push_back(one);
    }
    ++waits_;
    std::erase_if(held_, [&](const Held& held) {
      if (held.until > waits_) return false;
      ended.push_back(held.ended);
      return true;
    });
  }

 private:
  // A passing fault never strikes the same transfer twice in a row: whoever tries again some times must
  // succeed.
  bool strikes(const Transfer& transfer) {
    if (++added_ % faults_.every != 0 && !(faults_.for_good && added_ >= faults_.every)) return false;
    const std::int64_t before = std::exchange(struck_, static_cast<std::int64_t>(transfer.tag));
    return faults_.for_good || before != struck_;
  }
  std::int64_t soon() { return 1 + static_cast<std::int64_t>(random_() % 5); }

  struct Held {
    Ended ended;
    std::int64_t until = 0;  // that many waits
  };
  std::unique_ptr<Ring> real_;
  const Faults faults_;
  std::int64_t added_ = 0, waits_ = 0, struck_ = -1;
  std::vector<Ended> made_up_;
  std::vector<std::uint64_t> late_;
  std::deque<Held> held_;
  std::minstd_rand random_{7};
};

inline MakeRing with_faults(MakeRing make, Faults faults) {
  return [make = std::move(make), faults](const std::vector<int>& files, std::size_t depth) {
    return std::make_unique<FaultyRing>(make(files, depth), faults);
  };
}

}  // namespace prun::nvme
