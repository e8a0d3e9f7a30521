#include "train/checkpoint/piece_ring.hpp"

#include <algorithm>
#include <utility>

#include "prun/error.hpp"

namespace prun {
namespace {

constexpr std::int64_t alignment = 64;

}  // namespace

PieceRing::PieceRing(std::span<std::byte> memory, std::vector<std::int64_t> bytes,
                     std::function<void(std::size_t)> read)
    : memory_(memory), bytes_(std::move(bytes)), read_(std::move(read)) {
  for (const std::int64_t piece : bytes_)
    PRUN_CHECK(piece <= static_cast<std::int64_t>(memory_.size()), "a piece of ", piece,
               " bytes in memory of ", memory_.size());
}

// Returns the place of the next piece: after the one before it or, if too little is left there, at the
// beginning, before the first that is still in use.
std::optional<std::int64_t> PieceRing::place_of_next() const {
  const std::int64_t size = bytes_[begun_], all = static_cast<std::int64_t>(memory_.size());
  if (held_.empty()) return 0;
  const std::int64_t first = held_.front().begin, next = held_.back().end;
  if (held_.back().begin >= first) {
    if (next + size <= all) return next;
    return size <= first ? std::optional<std::int64_t>(0) : std::nullopt;
  }
  return next + size <= first ? std::optional(next) : std::nullopt;
}

std::optional<PieceRing::Room> PieceRing::next_room() {
  std::unique_lock lock(mutex_);
  std::optional<std::int64_t> place;
  changed_.wait(
      lock, [&] { return given_up_ || begun_ == bytes_.size() || (place = place_of_next()).has_value(); });
  if (given_up_ || begun_ == bytes_.size()) return {};
  const std::int64_t size = bytes_[begun_];
  held_.push_back({*place, (*place + size + alignment - 1) / alignment * alignment, false});
  return Room{begun_++, memory_.subspan(static_cast<std::size_t>(*place), static_cast<std::size_t>(size))};
}

void PieceRing::filled(const Room& room) {
  const std::scoped_lock lock(mutex_);
  if (given_up_) return;
  held_[room.piece - done_].is_filled = true;
  const std::size_t before = filled_;
  while (filled_ < begun_ && held_[filled_ - done_].is_filled) ++filled_;
  if (filled_ == before) return;
  read_(filled_);
  changed_.notify_all();
}

std::optional<PieceRing::Room> PieceRing::take() {
  std::unique_lock lock(mutex_);
  if (std::exchange(taken_, false)) release();
  changed_.wait(lock, [&] { return given_up_ || done_ < filled_ || done_ == bytes_.size(); });
  if (given_up_ || done_ == bytes_.size()) return {};
  taken_ = true;
  return Room{done_, memory_.subspan(static_cast<std::size_t>(held_.front().begin),
                                     static_cast<std::size_t>(bytes_[done_]))};
}

void PieceRing::release() {
  held_.pop_front();
  ++done_;
  changed_.notify_all();
}

void PieceRing::give_up() {
  const std::scoped_lock lock(mutex_);
  given_up_ = true;
  changed_.notify_all();
}

void PieceRing::await_read() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return given_up_ || filled_ == bytes_.size(); });
}

}  // namespace prun
