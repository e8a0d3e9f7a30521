#include "train/checkpoint/copied_state.hpp"

#include <algorithm>

#include "train/checkpoint/checkpoint_files.hpp"

namespace prun {
namespace {

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

}  // namespace

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

}  // namespace prun
