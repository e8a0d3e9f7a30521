#include "nvme/channel.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "nvme/store.hpp"
#include "prun/error.hpp"

namespace prun::nvme {
namespace {

constexpr int most_tries = 4;
constexpr std::int64_t memory_alignment = 512;  // alignment of what a drive reads and writes directly

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};

bool is_aligned(const std::byte* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % memory_alignment == 0;
}

}  // namespace

// Holds a transfer of whole blocks. Bytes that do not begin or end as a drive needs it pass through memory of
// the slot.
struct Channel::Slot {
  Transfer transfer;
  std::byte* target = nullptr;  // where the bytes come from or go to
  std::int64_t wanted = 0;      // number of these bytes
  std::int64_t done = 0;
  int tries = 0;
  bool taken = false, given = false;
  Clock::time_point begun, not_before;
  std::unique_ptr<std::byte, Free> own;
  std::int64_t own_bytes = 0;
  Slot* kept = nullptr;  // the one that was kept before it

  std::byte* own_memory(std::int64_t bytes) {
    if (own_bytes < bytes) {
      own.reset(static_cast<std::byte*>(
          std::aligned_alloc(static_cast<std::size_t>(block), static_cast<std::size_t>(bytes))));
      if (!own) throw_error(ErrorCode::unsupported, out_of_memory);
      own_bytes = bytes;
    }
    return own.get();
  }
  bool passes_through() const { return transfer.memory != target; }
  // Copies what is to be written into memory of its own; the rest of a last block becomes zero.
  void fill() const {
    std::memcpy(transfer.memory, target, static_cast<std::size_t>(wanted));
    std::memset(transfer.memory + wanted, 0, static_cast<std::size_t>(transfer.bytes - wanted));
  }
  std::span<std::byte> bytes() const { return {transfer.memory, static_cast<std::size_t>(transfer.bytes)}; }
  // Returns the rest of the transfer.
  Transfer rest() const {
    return {transfer.write,         transfer.file,         transfer.offset + done,
            transfer.memory + done, transfer.bytes - done, transfer.tag};
  }
};

Channel::Channel(Store& store, std::unique_ptr<Ring> ring) : store_(store), ring_(std::move(ring)) {
  under_way_.resize(store.files().size());
  slots_.resize(store.settings().depth * store.files().size());
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i] = std::make_unique<Slot>();
    slots_[i]->transfer.tag = i;
  }
}

// A closed ring leaves its transfers under way to the system: memory that a lost transfer may write is used
// for nothing else as long as the process lives, so nobody frees it.
Channel::~Channel() {
  ring_.reset();
  if (!lost_) return;
  static std::atomic<Slot*> kept;
  for (std::unique_ptr<Slot>& slot : slots_) {
    Slot* const one = slot.release();
    one->kept = kept.exchange(one);
  }
}

void Channel::move(bool write, std::span<const MovedPiece> pieces, Memory memory) {
  write_ = write;
  if (write) store_.note_writing();
  memory_ = memory;
  pieces_ = PieceCursor(pieces);
  if (lost_) std::rethrow_exception(failure_);
  failure_ = nullptr;
  for (;;) {
    feed();
    if (std::none_of(slots_.begin(), slots_.end(), [](const auto& slot) { return slot->taken; })) break;
    ended_.clear();
    ring_->wait(patience(), ended_);
    for (const Ended& ended : ended_) settle(ended);
    look_at_clocks();
  }
  if (failure_) std::rethrow_exception(failure_);
}

// ---------------------------------------------------------------- cutting

// Takes the next of the pieces; returns false if there is none, or its drive has enough to do.
bool Channel::next_transfer(Slot& slot) {
  const MovedPiece piece = pieces_.rest();
  if (failure_ || piece.bytes == 0) return false;
  const Stretch stretch = store_.stretch_at(piece.address);
  if (under_way_[stretch.file] == store_.settings().depth) return false;
  std::int64_t wanted = std::min(stretch.bytes, piece.bytes);
  std::byte* const target = piece.memory;
  if (is_aligned(target) && wanted > block) wanted = wanted / block * block;
  const std::int64_t bytes = (wanted + block - 1) / block * block;
  slot.target = target;
  slot.wanted = wanted;
  slot.done = 0;
  slot.tries = 0;
  slot.transfer.write = write_;
  slot.transfer.file = stretch.file;
  slot.transfer.offset = stretch.offset;
  slot.transfer.bytes = bytes;
  const bool takes_target = bytes == wanted && is_aligned(target) && (write_ || memory_ == Memory::stays);
  slot.transfer.memory = takes_target ? target : slot.own_memory(bytes);
  if (slot.passes_through()) copied_ += wanted;
  if (write_ && slot.passes_through()) slot.fill();
  if (write_) store_.note_checksums(stretch.file, stretch.offset, slot.bytes());
  pieces_.pass(wanted);
  return true;
}

void Channel::feed() {
  const Clock::time_point now = Clock::now();
  if (failure_)
    for (const std::size_t slot : std::exchange(waiting_, {})) end(*slots_[slot]);
  std::erase_if(waiting_, [&](std::size_t slot) { return slots_[slot]->not_before <= now && give(slot); });
  if (!waiting_.empty()) return;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = *slots_[i];
    if (slot.taken) continue;
    if (!next_transfer(slot)) return;
    slot.taken = true;
    slot.begun = now;
    ++under_way_[slot.transfer.file];
    if (!give(i)) {
      waiting_.push_back(i);
      return;
    }
  }
}

bool Channel::give(std::size_t slot) { return slots_[slot]->given = ring_->add(slots_[slot]->rest()); }

// ---------------------------------------------------------------- how they end

void Channel::settle(const Ended& ended) {
  Slot& slot = *slots_.at(ended.tag);
  if (!slot.given) return;  // the transfer was given up
  slot.given = false;
  if (ended.result <= 0) return try_again(ended.tag, ended.result);
  // A drive moves a partly moved block again.
  const std::int64_t done = slot.done + ended.result, before = slot.done;
  slot.done = done == slot.transfer.bytes ? done : done / block * block;
  if (slot.done == slot.transfer.bytes) return complete(slot);
  if (slot.done > before) slot.tries = 0;
  try_again(ended.tag, 0);
}

void Channel::complete(Slot& slot) {
  if (!write_) {
    if (const auto damaged = store_.damaged_block(slot.transfer.file, slot.transfer.offset, slot.bytes()))
      lose(slot, detail::concat("its block at ", *damaged,
                                " is not as it was written; replace the drive or leave it out of "
                                "[tier.nvme] paths"));
    if (slot.passes_through())
      std::memcpy(slot.target, slot.transfer.memory, static_cast<std::size_t>(slot.wanted));
  }
  end(slot);
}

// Tries again; `result` is 0 if less than requested was transferred.
void Channel::try_again(std::size_t number, std::int64_t result) {
  Slot& slot = *slots_[number];
  const auto error = static_cast<int>(-result);
  if (failure_) return end(slot);
  if (++slot.tries == most_tries) {
    lose(slot, result < 0 ? detail::concat(std::strerror(error), " (errno ", error, "), tried ", slot.tries,
                                           " times; mend the drive or leave it out of [tier.nvme] paths")
                          : "the file ends before; something has cut it");
    return end(slot);
  }
  ++tried_again_;
  slot.not_before = Clock::now() + std::chrono::milliseconds(result < 0 ? slot.tries * slot.tries : 0);
  waiting_.push_back(number);
}

// Checks the time limits. A transfer that has not ended may still do so, at any time: the channel moves
// nothing more.
void Channel::look_at_clocks() {
  const Clock::time_point now = Clock::now();
  for (const auto& slot : slots_) {
    if (!slot->taken || now - slot->begun < store_.settings().limit) continue;
    lose(*slot, detail::concat("it has not ended within ", store_.settings().limit.count(),
                               " s; mend the drive, or raise [tier.nvme] limit"));
    std::erase(waiting_, slot->transfer.tag);
    slot->given = false;
    lost_ = true;
    end(*slot);
  }
}

// Gives up: the first lost transfer says why; the others end.
void Channel::lose(const Slot& slot, const std::string& why) {
  if (failure_) return;
  const Transfer& transfer = slot.transfer;
  failure_ = std::make_exception_ptr(Error(
      ErrorCode::storage, detail::concat("tier nvme: ", store_.files()[transfer.file]->folder().string(),
                                         transfer.write ? ": writing " : ": reading ", transfer.bytes,
                                         " bytes at ", transfer.offset, " of its file: ", why)));
}

void Channel::end(Slot& slot) {
  slot.taken = false;
  --under_way_[slot.transfer.file];
}

std::chrono::microseconds Channel::patience() const {
  constexpr std::chrono::milliseconds soon{1}, late{100};
  return waiting_.empty() ? late : soon;
}

}  // namespace prun::nvme
