#include "nvme_device.hpp"

#include <algorithm>
#include <system_error>

namespace prun::nvme {
namespace {

// Stands in for a kernel: the queue runs the copy, and never calls this.
void run_by_queue(const KernelArgs&, const KernelContext&) {
  throw_error(ErrorCode::internal, "a kernel of the tier nvme is called beside its queue");
}

Kernel select_copy(const OpShape& shape) {
  const OperandShape &from = shape.operand[0], &to = shape.operand[1];
  return from.bytes() == to.bytes() && from.dtype == to.dtype ? run_by_queue : nullptr;
}

std::int64_t stripe_of(std::int64_t kib) {
  if (kib * 1024 % block != 0)
    throw_error(ErrorCode::bad_input, "stripe_kib is ", kib, "; it must be a multiple of ", block / 1024);
  return kib * 1024;
}

// Refuses rates of which nobody knows whose they are.
void check_rates(const Options& options) {
  const std::size_t drives = options.texts("paths").size();
  for (const char* const key : {"read_rate", "write_rate"}) {
    const std::size_t rates = options.numbers(key).size();
    if (rates > 1 && rates != drives)
      throw_error(ErrorCode::bad_input, "cannot assign ", rates, " rates of [tier.nvme] ", key, " to ",
                  drives, drives == 1 ? " folder" : " folders",
                  "; give one for each folder of paths, in their order, or one for all");
  }
  if (options.numbers("read_rate").empty() != options.numbers("write_rate").empty())
    throw_error(
        ErrorCode::bad_input,
        "cannot use only one of read_rate and write_rate in [tier.nvme]; set both, or leave both out");
}

}  // namespace

NvmeDevice::NvmeDevice(const Options& options)
    : io_(options.text("io")),
      name_("nvme:"),
      planned_bytes_(static_cast<std::int64_t>(options.number("plan_gib") * (1 << 30))),
      local_ranks_(options.local_ranks()) {
  for (const std::string& path : options.texts("paths")) {
    settings_.folders.emplace_back(path);
    name_ += " " + path;
  }
  check_rates(options);
  settings_.stripe = stripe_of(options.integer("stripe_kib"));
  settings_.depth = static_cast<std::size_t>(options.integer("depth"));
  settings_.limit = std::chrono::seconds(options.integer("limit"));
  settings_.direct = options.flag("direct");
  settings_.checksum = options.flag("checksum");
}

// States the tier's size: bytes are spread evenly over the drives.
DeviceInfo NvmeDevice::info() {
  if (settings_.folders.empty())
    throw_error(ErrorCode::bad_input,
                "[tier.nvme] paths is empty; name a folder on each drive that bytes may lie on");
  DeviceInfo info;
  info.name = name_;
  info.kind = "nvme";
  info.tier = true;
  std::int64_t own = 0;
  for (const Range& range : ranges_) own += range.store.bytes();
  info.memory_bytes = planned_bytes_ > 0 ? planned_bytes_ / local_ranks_ : room_here(own);
  return info;
}

// The recipe alone tells what another machine's drives are.
std::int64_t NvmeDevice::room_here(std::int64_t own) const {
  try {
    return room_in_all(settings_.folders, local_ranks_, own);
  } catch (const Error& error) {
    throw_error(error.code(), error.what(),
                "; to plan for another machine, say by tier.nvme.plan_gib how much room its drives have");
  }
}

MakeRing NvmeDevice::make_ring() {
  if (io_ == "threads") return make_thread_ring;
  return [this](const std::vector<int>& files, std::size_t depth) -> std::unique_ptr<Ring> {
    try {
      return make_uring(files, depth);
    } catch (const std::system_error& error) {
      use_threads(error.code().message());
      return make_thread_ring(files, depth);
    }
  };
}

// Falls back to threads. If the first store's channels do, it is announced with the result; for later ones at
// once.
void NvmeDevice::use_threads(const std::string& why) {
  if (io_ == "io_uring")
    throw_error(ErrorCode::unsupported, "the system forbids io_uring (", why,
                "); allow it, or leave [tier.nvme] io out, so that threads read and write");
  const std::scoped_lock lock(instead_mutex_);
  if (!std::exchange(instead_, why).empty() || !announced_) return;
  log_line("the system gives no more of io_uring (", why, "), so threads read and write beside it");
}

void* NvmeDevice::allocate(Space space, std::int64_t bytes) {
  if (space != Space::disk)
    throw_error(ErrorCode::bad_input, "a tier has no memory of its own; place values on its disk");
  const std::scoped_lock lock(mutex_);
  Range& range = ranges_.emplace_back(settings_, bytes, make_ring());
  announce(range.store);
  return range.addresses.begin();
}

// Announces once what is not as it should be, with the result.
void NvmeDevice::announce(const Store& store) {
  const std::scoped_lock lock(instead_mutex_);
  if (std::exchange(announced_, true)) return;
  const DriveFile& file = *store.files().front();
  const auto rate = static_cast<std::int64_t>(file.first_rate() / 1e6);
  if (!instead_.empty())
    log_line("the system forbids io_uring (", instead_, "), so threads read and write; the first pass wrote ",
             rate, " MB/s to a drive");
  for (const auto& each : store.files())
    if (settings_.direct && !each->is_direct())
      log_line(each->folder().string(),
               " is on a file system that does not go past the system's cache; the first pass wrote ", rate,
               " MB/s there");
}

void NvmeDevice::release(Space, void* memory, std::int64_t) {
  const std::scoped_lock lock(mutex_);
  ranges_.remove_if([&](const Range& range) { return range.addresses.begin() == memory; });
}

NvmeDevice::Range& NvmeDevice::range_at(const void* address) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::find_if(ranges_.begin(), ranges_.end(),
                                  [&](const Range& range) { return range.addresses.has(address); });
  PRUN_CHECK(found != ranges_.end(), "an address that this tier has not given");
  return *found;
}

Place NvmeDevice::find(const void* address) {
  const std::scoped_lock lock(mutex_);
  for (Range& range : ranges_)
    if (range.addresses.has(address)) return {&range.store, range.addresses.offset_of(address)};
  return {};
}

void NvmeDevice::upload(void* device, const void* host, std::int64_t bytes) {
  if (bytes == 0) return;
  Range& range = range_at(device);
  range.store.write(range.addresses.offset_of(device),
                    {static_cast<const std::byte*>(host), static_cast<std::size_t>(bytes)});
}

void NvmeDevice::download(void* host, const void* device, std::int64_t bytes) {
  if (bytes == 0) return;
  Range& range = range_at(device);
  range.store.read(range.addresses.offset_of(device),
                   {static_cast<std::byte*>(host), static_cast<std::size_t>(bytes)});
}

void NvmeDevice::clear(void* device, std::int64_t bytes) {
  if (bytes == 0) return;
  Range& range = range_at(device);
  range.store.clear(range.addresses.offset_of(device), bytes);
}

const KernelDef* NvmeDevice::kernel(std::string_view op) {
  static constexpr KernelDef copy{"copy", select_copy};
  return op == copy.op ? &copy : nullptr;
}

Queue NvmeDevice::create_queue(std::string_view, bool) {
  const std::scoped_lock lock(mutex_);
  return &queues_.emplace_back([this](const void* address) { return find(address); });
}

void NvmeDevice::destroy_queue(Queue queue) {
  const std::scoped_lock lock(mutex_);
  queues_.remove_if([&](const NvmeQueue& owned) { return &owned == queue; });
}

BoundWork NvmeDevice::bind(Queue queue, const Launch* launches, std::int64_t count) {
  return static_cast<NvmeQueue*>(queue)->bind({launches, static_cast<std::size_t>(count)});
}

void NvmeDevice::run(Queue queue, BoundWork work) {
  static_cast<NvmeQueue*>(queue)->run(*static_cast<NvmeQueue::Work*>(work));
}

}  // namespace prun::nvme
