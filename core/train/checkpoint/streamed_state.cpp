#include "train/checkpoint/streamed_state.hpp"

#include <algorithm>

#include "base/thread.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/checkpoint/copied_state.hpp"

namespace prun {
namespace {

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

}  // namespace

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

std::unique_ptr<SavedState> saved_state(const Assembly& assembly, const PlanMemory& memory, SaveGate& gate) {
  if (save_memory(assembly.recipe()).all) return std::make_unique<CopiedState>(assembly, memory);
  return std::make_unique<StreamedState>(assembly, memory, gate);
}

}  // namespace prun
