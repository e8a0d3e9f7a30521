#include "execute/device_checksums.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <optional>

#include "base/thread.hpp"
#include "execute/communicators.hpp"
#include "execute/device_memory.hpp"
#include "ops/base_ops.hpp"
#include "prun/checksum.hpp"

namespace prun {
namespace {

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

// Returns shapes as the op sees them: the elements that are summed, and the sums.
OpShape shape_of(const OpDef& def, DType type, std::int64_t count) {
  OpShape shape;
  shape.count = 2;
  const Dim all{"elements", count};
  shape.output(0, type, &all, 1);
  raise(def.rule(&shape));
  return shape;
}

Tensor tensor_of(const OperandShape& shape, void* data) {
  Tensor tensor;
  tensor.data = data;
  tensor.dtype = shape.dtype;
  tensor.rank = 1;
  tensor.dim[0] = shape.dims[0].extent;
  return tensor;
}

}  // namespace

std::uint64_t checksum_of(std::int64_t element, std::span<const std::byte> bytes, std::int64_t first) {
  switch (element) {
    case 8: return sum_of<std::uint64_t>(bytes, first);
    case 4: return sum_of<std::uint32_t>(bytes, first);
    case 2: return sum_of<std::uint16_t>(bytes, first);
    default: return sum_of<std::uint8_t>(bytes, first);
  }
}

class DeviceChecksums::OfDevice {
 public:
  OfDevice(DeviceInterface& device, const OpDef& def)
      : device_(device), def_(def), queue_(device, base_ops::checksum) {}

  void add(std::size_t number, DType type, std::int64_t count, std::byte* data) {
    const OpShape shape = shape_of(def_, type, count);
    const KernelDef* const kernel = device_.kernel(base_ops::checksum);
    launches_.push_back({kernel ? kernel->select(shape) : nullptr, {}, base_ops::checksum});
    if (!launches_.back().kernel) refuse();
    numbers_.push_back(number);
    operands_.push_back({tensor_of(shape.operand[0], data), tensor_of(shape.operand[1], nullptr)});
    sums_each_ = shape.operand[1].elements();
  }

  // Binds the work; says whether the device may have tried it.
  bool bind() {
    const auto each = static_cast<std::size_t>(sums_each_);
    sums_.emplace(device_, static_cast<std::int64_t>(launches_.size() * each * sizeof(std::uint64_t)));
    for (std::size_t i = 0; i < launches_.size(); ++i) {
      operands_[i][1].data = sum(i * each);
      launches_[i].args.operands = operands_[i].data();
      launches_[i].args.operand_count = 2;
    }
    raise(
        device_.bind(queue_.handle(), launches_.data(), static_cast<std::int64_t>(launches_.size()), &work_));
    return queue_.asynchronous();
  }

  // This runs on its own thread, since devices name and pin threads that feed their queues.
  void run() {
    std::exception_ptr failed;
    start_thread("checksums", [&] {
      try {
        queue_.attach();
        raise(device_.run(queue_.handle(), work_));
        queue_.await();
      } catch (...) {
        failed = std::current_exception();
      }
    }).join();
    if (failed) std::rethrow_exception(failed);
  }

  void read(std::vector<std::uint64_t>& all) const {
    const auto each = static_cast<std::size_t>(sums_each_);
    for (std::size_t i = 0; i < numbers_.size(); ++i)
      for (std::size_t s = 0; s < each; ++s) all[numbers_[i]] += *sum(i * each + s);
  }

 private:
  std::uint64_t* sum(std::size_t i) const { return reinterpret_cast<std::uint64_t*>(sums_->data()) + i; }

  [[noreturn]] void refuse() const {
    DeviceInfo info;
    raise(device_.info(&info));
    throw_error(ErrorCode::unsupported, "cannot compare replicas on device '", info.name.view(),
                "': it has no kernel '", base_ops::checksum, "'; set run.check_replicas_every = 0");
  }

  DeviceInterface& device_;
  const OpDef& def_;
  std::vector<std::size_t> numbers_;  // numbers of the parts
  std::deque<std::array<Tensor, 2>> operands_;
  std::vector<Launch> launches_;
  std::int64_t sums_each_ = 0;
  std::optional<Pinned> sums_;
  SideQueue queue_;
  BoundWork work_ = nullptr;
};

// Computes on the host, of what a tier has, the sums that devices compute: a save holds what it reads against
// either.
class DeviceChecksums::OfTier {
 public:
  explicit OfTier(DeviceInterface& tier) : tier_(tier) {}

  void add(std::size_t number, DType type, std::int64_t count, const std::byte* data) {
    parts_.push_back({number, size_of(type), count * size_of(type), data});
  }

  void read(std::vector<std::uint64_t>& all) const {
    std::vector<std::byte> buffer(most);
    for (const Part& part : parts_) {
      for (std::int64_t at = 0; at < part.bytes; at += most) {
        const std::span<std::byte> piece =
            std::span(buffer).first(static_cast<std::size_t>(std::min(most, part.bytes - at)));
        raise(tier_.download(piece.data(), part.data + at, static_cast<std::int64_t>(piece.size())));
        all[part.number] += checksum_of(part.element, piece, at / part.element);
      }
    }
  }

 private:
  static constexpr std::int64_t most = std::int64_t{1} << 20;

  struct Part {
    std::size_t number;
    std::int64_t element, bytes;
    const std::byte* data;
  };

  DeviceInterface& tier_;
  std::vector<Part> parts_;
};

DeviceChecksums::DeviceChecksums(const Program& program, const PlanMemory& memory, const Devices& devices,
                                 const std::vector<PersistentPart>& parts)
    : parts_(parts.size()) {
  const OpDef& def = program.registry().find(base_ops::checksum);
  std::map<std::int32_t, OfDevice*> by_number;
  std::map<std::int32_t, OfTier*> tiers;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const PersistentPart& part = parts[i];
    const DType type = program.value(part.value).dtype;
    const PlanMemory::Persistent allocation = memory.persistent_at(part.value, part.instance);
    DeviceInterface& device = *devices.at(allocation.device);
    std::byte* const data = allocation.data + part.first * size_of(type);
    if (info_of(device).tier) {
      OfTier*& of = tiers[allocation.device];
      if (!of) of = tiers_.emplace_back(std::make_unique<OfTier>(device)).get();
      of->add(i, type, part.count, data);
      continue;
    }
    OfDevice*& of = by_number[allocation.device];
    if (!of) of = devices_.emplace_back(std::make_unique<OfDevice>(device, def)).get();
    of->add(i, type, part.count, data);
  }
  bool tried = false;
  for (const auto& of : devices_) tried |= of->bind();
  if (tried) memory.clear();  // trying may have overwritten it
}

DeviceChecksums::~DeviceChecksums() = default;

std::vector<std::uint64_t> DeviceChecksums::take() {
  std::vector<std::uint64_t> sums(parts_, 0);
  for (const auto& of : devices_) {
    of->run();
    of->read(sums);
  }
  for (const auto& of : tiers_) of->read(sums);
  return sums;
}

}  // namespace prun
