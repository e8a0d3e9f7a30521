#include "train/checkpoint/saved_state.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/safetensors.hpp"
#include "base/thread.hpp"
#include "execute/device_checksums.hpp"
#include "execute/device_memory.hpp"
#include "prun/error.hpp"
#include "prun/split_master.hpp"
#include "train/checkpoint/checkpoint_files.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- piece ring

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

// ------------------------------------------------------------------- saved pieces

std::vector<SavedPiece> pieces_of(const std::vector<HeldSlice>& slices, const Plan& plan) {
  std::vector<SavedPiece> pieces;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const HeldSlice& held = slices[i];
    const std::int64_t size = size_of(held.type), most = checksum_chunk_bytes / size;
    const std::int32_t read = plan.save_read_of({held.value, held.instance});
    for (std::int64_t first = 0; first < held.slice.count; first += most) {
      const std::int64_t count = std::min(most, held.slice.count - first);
      pieces.push_back({i, static_cast<std::uint64_t>(first / most), first, count, count * size, read});
    }
  }
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const SavedPiece& a, const SavedPiece& b) { return a.read < b.read; });
  return pieces;
}

void read_piece(const HeldSlice& slice, const SavedPiece& piece, const PlanMemory& memory,
                std::span<std::byte> to) {
  const std::int64_t at = slice.at + piece.first;
  if (slice.rounded == none) return memory.read(slice.value, slice.instance, at * size_of(slice.type), to);
  const std::size_t half = to.size() / 2;
  const std::int64_t offset = at * size_of(DType::u16);
  memory.read(slice.rounded, slice.instance, offset, to.first(half));
  memory.read(slice.value, slice.instance, offset, to.subspan(half));
}

void join_halves(std::span<const std::byte> halves, std::size_t first, std::span<float> joined) {
  const std::size_t count = halves.size() / sizeof(float);
  const auto half = [&](std::size_t number) {
    std::uint16_t bits;
    std::memcpy(&bits, halves.data() + number * sizeof bits, sizeof bits);
    return bits;
  };
  for (std::size_t i = 0; i < joined.size(); ++i)
    joined[i] = joined_halves(half(first + i), half(count + first + i));
}

namespace {

// ------------------------------------------------------------------- streamed state
// Writes the state piece by piece, from its memory through a bounded buffer into the file. Threads read ahead
// of the one that writes, in the order in which the next step overwrites what they read; a call that
// overwrites waits at the gate.

// ------------------------------------------------------------ streamed sums

// Compares checksums of what is written with those from the last comparison of ranks: what changed in between
// is not saved.
class StreamedSums {
 public:
  StreamedSums() = default;
  StreamedSums(const SavedSums& wanted, const std::vector<HeldSlice>& slices);

  // Adds a piece; pieces of a slice come in any order, each once. With the last of them, it throws diverged
  // if the sum differs.
  void add(const HeldSlice& slice, const SavedPiece& piece, std::span<const std::byte> bytes);

 private:
  struct Sum {
    std::uint64_t sum = 0;
    std::int64_t left = 0;  // number of elements
  };
  SavedSums wanted_;
  std::vector<Sum> sums_;
};

class StreamedState final : public SavedState {
 public:
  StreamedState(const Assembly& assembly, const PlanMemory& memory, SaveGate& gate);

  void make_room() override;
  void begin(const SavedSums& sums) override;
  bool write(const std::filesystem::path& file, const std::stop_token& stop,
             const std::function<void()>& wrote) override;
  void await_go_on() override;

 private:
  void write_pieces(const std::filesystem::path& file, const std::stop_token& stop,
                    const std::function<void()>& wrote);
  void write_piece(const SavedPiece& piece, std::span<const std::byte> bytes, SlicesWriter& file);
  void read_pieces();
  void report_read(std::size_t pieces);

  const Assembly& assembly_;
  const PlanMemory& memory_;
  SaveGate& gate_;
  const std::vector<HeldSlice> slices_;
  const std::vector<SavedPiece> pieces_;
  std::optional<Pinned> buffer_;
  std::vector<float> joined_;

  // This belongs to the save that was begun last.
  std::optional<PieceRing> ring_;
  StreamedSums sums_;
  std::mutex mutex_;
  std::exception_ptr trouble_;  // error of a thread that reads
};

StreamedSums::StreamedSums(const SavedSums& wanted, const std::vector<HeldSlice>& slices) : wanted_(wanted) {
  if (wanted_.empty()) return;
  for (const HeldSlice& slice : slices) sums_.push_back({0, slice.slice.count});
}

// Adds a piece: of two halves, the upper one is a tensor of its own.
void StreamedSums::add(const HeldSlice& slice, const SavedPiece& piece, std::span<const std::byte> bytes) {
  if (wanted_.empty() || !wanted_[piece.slice]) return;
  const bool halves = slice.rounded != none;
  if (halves) bytes = bytes.subspan(bytes.size() / 2);
  Sum& own = sums_[piece.slice];
  own.sum += checksum_of(size_of(halves ? DType::u16 : slice.type), bytes, piece.first);
  own.left -= piece.count;
  if (own.left == 0 && own.sum != *wanted_[piece.slice])
    throw_error(ErrorCode::diverged, "what was read of '", slice.tensor,
                "' to be saved is not what all ranks had alike right before; a processor, a memory or a link "
                "has given a wrong number. Go on from the newest checkpoint, without the hardware that is at "
                "fault");
}

// ------------------------------------------------------------ copied state

// Copies the whole state into host memory: this is the simplest way, which the other one is compared with.
class CopiedState final : public SavedState {
 public:
  CopiedState(const Assembly& assembly, const PlanMemory& memory);

  void make_room() override;
  void begin(const SavedSums& sums) override;
  bool write(const std::filesystem::path& file, const std::stop_token& stop,
             const std::function<void()>& wrote) override;

 private:
  const Assembly& assembly_;
  const PlanMemory& memory_;
  const std::vector<HeldSlice> slices_;
  std::int64_t bytes_ = 0;
  std::optional<Pinned> copy_;
};

void write_joined(std::span<const std::byte> halves, const WriteBytes& write) {
  constexpr std::size_t at_a_time = std::size_t{1} << 18;
  const std::size_t count = halves.size() / sizeof(float);
  std::vector<float> joined;
  for (std::size_t first = 0; first < count; first += joined.size()) {
    joined.resize(std::min(at_a_time, count - first));
    join_halves(halves, first, joined);
    write(std::as_bytes(std::span(joined)));
  }
}

CopiedState::CopiedState(const Assembly& assembly, const PlanMemory& memory)
    : assembly_(assembly), memory_(memory), slices_(assembly.saved_slices()) {
  for (const HeldSlice& held : slices_) bytes_ += held.bytes();
}

void CopiedState::make_room() {
  if (!copy_) copy_.emplace(*assembly_.devices().front(), std::max<std::int64_t>(bytes_, 1));
}

void CopiedState::begin(const SavedSums&) {
  make_room();
  std::byte* to = copy_->data();
  for (const HeldSlice& held : slices_) {
    const std::span<std::byte> bytes(to, static_cast<std::size_t>(held.bytes()));
    read_piece(held, {0, 0, 0, held.slice.count, held.bytes(), 0}, memory_, bytes);
    to += held.bytes();
  }
}

bool CopiedState::write(const std::filesystem::path& file, const std::stop_token&,
                        const std::function<void()>& wrote) {
  std::vector<std::span<const std::byte>> bytes;
  const std::byte* from = copy_->data();
  for (const HeldSlice& held : slices_) {
    bytes.emplace_back(from, static_cast<std::size_t>(held.bytes()));
    from += held.bytes();
  }
  write_slices(file, {slices_.begin(), slices_.end()}, [&](std::size_t number, const WriteBytes& give) {
    if (slices_[number].rounded != none)
      write_joined(bytes[number], give);
    else
      give(bytes[number]);
    wrote();
  });
  return true;
}

std::vector<std::int64_t> sizes_of(const std::vector<SavedPiece>& pieces) {
  std::vector<std::int64_t> sizes;
  sizes.reserve(pieces.size());
  for (const SavedPiece& piece : pieces) sizes.push_back(piece.bytes);
  return sizes;
}

// Returns as much as was planned, and no more than can be used.
std::int64_t buffer_bytes(const Assembly& assembly, const std::vector<SavedPiece>& pieces) {
  std::int64_t all = 0, largest = 0;
  for (const SavedPiece& piece : pieces) {
    all += piece.bytes + 64;
    largest = std::max(largest, piece.bytes);
  }
  return std::max({std::min(all, assembly.process_need().save_bytes), largest, std::int64_t{1}});
}

StreamedState::StreamedState(const Assembly& assembly, const PlanMemory& memory, SaveGate& gate)
    : assembly_(assembly),
      memory_(memory),
      gate_(gate),
      slices_(assembly.saved_slices()),
      pieces_(pieces_of(slices_, assembly.plan())) {}

void StreamedState::make_room() {
  if (!buffer_) buffer_.emplace(*assembly_.devices().front(), buffer_bytes(assembly_, pieces_));
}

void StreamedState::begin(const SavedSums& sums) {
  make_room();
  trouble_ = nullptr;
  sums_ = StreamedSums(sums, slices_);
  ring_.emplace(buffer_->bytes(), sizes_of(pieces_), [this](std::size_t pieces) { report_read(pieces); });
  gate_.close();
  report_read(0);
}

// Reports reads as done: those of the plan of which this rank saves nothing are done with those before them.
void StreamedState::report_read(std::size_t pieces) {
  if (pieces == pieces_.size()) return gate_.open();
  if (const std::int32_t next = pieces_[pieces].read; next > 0) gate_.pass(next - 1);
}

void StreamedState::await_go_on() {
  if (!gate_.holds_back()) ring_->await_read();
}

// Writes the file. If it ends early, nothing of it is kept, and no call waits any more for what is not read.
bool StreamedState::write(const std::filesystem::path& file, const std::stop_token& stop,
                          const std::function<void()>& wrote) {
  std::exception_ptr failed;
  {
    const std::int64_t threads =
        save_readers(assembly_.plan(), assembly_.device_info(), assembly_.mesh().world());
    std::vector<std::jthread> readers;
    try {
      for (std::int64_t t = 0; t < threads; ++t)
        readers.push_back(start_thread<std::jthread>("reading what is saved", [this] { read_pieces(); }));
      write_pieces(file, stop, wrote);
    } catch (...) {
      failed = std::current_exception();
    }
    ring_->give_up();
  }
  gate_.open();
  if (trouble_) std::rethrow_exception(trouble_);
  if (failed) std::rethrow_exception(failed);
  return !stop.stop_requested();
}

void StreamedState::write_pieces(const std::filesystem::path& file, const std::stop_token& stop,
                                 const std::function<void()>& wrote) {
  const std::stop_callback stopped(stop, [this] { ring_->give_up(); });
  SlicesWriter out(file, {slices_.begin(), slices_.end()});
  std::size_t written = 0;
  for (; const std::optional<PieceRing::Room> room = ring_->take(); ++written) {
    write_piece(pieces_[room->piece], room->bytes, out);
    wrote();
  }
  if (written == pieces_.size()) out.finish();
}

void StreamedState::write_piece(const SavedPiece& piece, std::span<const std::byte> bytes,
                                SlicesWriter& file) {
  sums_.add(slices_[piece.slice], piece, bytes);
  if (slices_[piece.slice].rounded != none) {
    joined_.resize(static_cast<std::size_t>(piece.count));
    join_halves(bytes, 0, joined_);
    bytes = std::as_bytes(std::span(joined_));
  }
  file.write_chunk(piece.slice, piece.chunk, bytes);
}

void StreamedState::read_pieces() {
  try {
    while (const std::optional<PieceRing::Room> room = ring_->next_room()) {
      const SavedPiece& piece = pieces_[room->piece];
      read_piece(slices_[piece.slice], piece, memory_, room->bytes);
      ring_->filled(*room);
    }
  } catch (...) {
    {
      const std::scoped_lock lock(mutex_);
      if (!trouble_) trouble_ = std::current_exception();
    }
    ring_->give_up();
  }
}

}  // namespace

std::unique_ptr<SavedState> saved_state(const Assembly& assembly, const PlanMemory& memory, SaveGate& gate) {
  if (save_memory(assembly.recipe()).all) return std::make_unique<CopiedState>(assembly, memory);
  return std::make_unique<StreamedState>(assembly, memory, gate);
}

}  // namespace prun
