// Copies the whole state into host memory: this is the simplest way, which the other one is compared with.
#pragma once

#include <optional>

#include "execute/device_memory.hpp"
#include "train/checkpoint/saved_pieces.hpp"
#include "train/checkpoint/saved_state.hpp"

namespace prun {

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

}  // namespace prun
