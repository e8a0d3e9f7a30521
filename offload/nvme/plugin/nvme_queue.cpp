#include "nvme_queue.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "prun/checksum.hpp"
#include "prun/plugin.hpp"

namespace prun::nvme {
namespace {

std::int64_t bytes_of(const Tensor& tensor) { return tensor.elements() * size_of(tensor.dtype); }

template <class Bits>
std::uint64_t sum_of(std::span<const std::byte> bytes, std::int64_t first) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes.size() / sizeof(Bits); ++i) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + i * sizeof bits, sizeof bits);
    sum += checksum_term(bits, first + static_cast<std::int64_t>(i));
  }
  return sum;
}

std::uint64_t sum_of(DType type, std::span<const std::byte> bytes, std::int64_t first) {
  switch (size_of(type)) {
    case 8: return sum_of<std::uint64_t>(bytes, first);
    case 4: return sum_of<std::uint32_t>(bytes, first);
    case 2: return sum_of<std::uint16_t>(bytes, first);
    default: return sum_of<std::uint8_t>(bytes, first);
  }
}

// A piece of it at a time passes through memory.
void run_sum(const NvmeQueue::Sum& sum) {
  constexpr std::int64_t most = std::int64_t{1} << 20;
  const std::int64_t bytes = bytes_of(sum.operand);
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(bytes, most)));
  std::uint64_t total = 0;
  for (std::int64_t at = 0; at < bytes; at += most) {
    const std::span<std::byte> piece =
        std::span(buffer).first(static_cast<std::size_t>(std::min(most, bytes - at)));
    sum.from.store->read(sum.from.offset + at, piece);
    total += sum_of(sum.operand.dtype, piece, at / size_of(sum.operand.dtype));
  }
  std::fill_n(sum.sums.as<std::uint64_t>(), sum.sums.elements(), std::uint64_t{0});
  sum.sums.as<std::uint64_t>()[0] = total;
}

}  // namespace

NvmeQueue::Work* NvmeQueue::bind(std::span<const Launch> launches) {
  Work& work = works_.emplace_back();
  for (const Launch& launch : launches) {
    if (launch.op.view() == "copy")
      add_copy(work, launch);
    else
      work.sums.push_back(
          {find_(launch.args.operands[0].data), launch.args.operands[0], launch.args.operands[1]});
  }
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
  for (const Sum& sum : work.sums) run_sum(sum);
}

Channel& NvmeQueue::channel_of(Store& store) {
  std::unique_ptr<Channel>& channel = channels_[&store];
  if (!channel) channel = store.open_channel();
  return *channel;
}

}  // namespace prun::nvme
