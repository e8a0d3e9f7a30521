// Writes the state piece by piece, from its memory through a bounded buffer into the file. Threads read ahead
// of the one that writes, in the order in which the next step overwrites what they read; a call that
// overwrites waits at the gate.
#pragma once

#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "execute/device_memory.hpp"
#include "train/checkpoint/piece_ring.hpp"
#include "train/checkpoint/saved_pieces.hpp"
#include "train/checkpoint/saved_state.hpp"
#include "train/checkpoint/streamed_sums.hpp"

namespace prun {

class SlicesWriter;

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

}  // namespace prun
