#include "nvme_queue.hpp"

#include <utility>

#include "prun/plugin.hpp"

namespace prun::nvme {
namespace {

std::int64_t bytes_of(const Tensor& tensor) { return tensor.elements() * size_of(tensor.dtype); }

}  // namespace

NvmeQueue::Work* NvmeQueue::bind(std::span<const Launch> launches) {
  Work& work = works_.emplace_back();
  for (const Launch& launch : launches) add_copy(work, launch);
  return &work;
}

void NvmeQueue::add_copy(Work& work, const Launch& launch) {
  const Tensor &from = launch.args.operands[0], &to = launch.args.operands[1];
  const Place source = find_(from.data), goal = find_(to.data);
  PRUN_CHECK((source.store != nullptr) != (goal.store != nullptr), "one side of a copy must lie on drives");
  const bool write = goal.store != nullptr;
  const Place& place = write ? goal : source;
  PRUN_CHECK(place.offset % block == 0, "a copy begins at ", place.offset, " of a tier");
  auto* const memory = static_cast<std::byte*>(write ? from.data : to.data);
  if (work.moves.empty() || work.moves.back().store != place.store || work.moves.back().write != write)
    work.moves.push_back({place.store, write, {}});
  work.moves.back().pieces.push_back({place.offset, memory, bytes_of(from)});
  const std::string refused =
      channel_of(*place.store).know({memory, static_cast<std::size_t>(bytes_of(from))});
  if (!refused.empty() && !std::exchange(told_, true))
    log_line("the system does not keep memory registered for io_uring (", refused,
             "), so each transfer takes more of a core");
}

void NvmeQueue::run(const Work& work) {
  for (const Move& move : work.moves) channel_of(*move.store).move(move.write, move.pieces);
}

Channel& NvmeQueue::channel_of(Store& store) {
  std::unique_ptr<Channel>& channel = channels_[&store];
  if (!channel) channel = store.open_channel();
  return *channel;
}

}  // namespace prun::nvme
