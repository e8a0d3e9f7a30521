#include "execute/plan_memory.hpp"

#include <algorithm>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "base/machine.hpp"
#include "base/random.hpp"
#include "base/thread.hpp"
#include "program/passes.hpp"

namespace prun {
namespace {

// One thread writes a tenth of what the memory takes, and a plan may hold all of the host's.
void clear_by_threads(std::span<std::byte> all) {
  constexpr std::size_t piece = 64 << 20, most_threads = 16;
  share_out(std::min<std::size_t>(most_threads, std::thread::hardware_concurrency()),
            (all.size() + piece - 1) / piece, [&](std::size_t, std::size_t i) {
              const auto part = all.subspan(i * piece, std::min(piece, all.size() - i * piece));
              std::fill(part.begin(), part.end(), std::byte{0});
            });
}

}  // namespace

// ------------------------------------------------------------------- plan memory

PlanMemory::Range::Range(const Layout::Range& planned, DeviceInterface& its_device, std::int64_t fence)
    : device(its_device), planned_(planned), fence_(fence) {
  void* memory = nullptr;
  raise(device.allocate(planned.place.space, bytes(), &memory));
  base_ = static_cast<std::byte*>(memory) + fence;
}

PlanMemory::Range::~Range() { device.release(planned_.place.space, base_ - fence_, bytes()); }

PlanMemory::PlanMemory(const Program& program, const Plan& plan, const Devices& devices, bool fenced)
    : program_(program), plan_(plan) {
  give_back_free_memory();
  constexpr std::int64_t fence = range_alignment;
  const std::vector<Layout::Range>& planned = plan.layout.ranges;
  const auto has_fences = [&](const Layout::Range& range) {
    return fenced && range.place.space != Space::disk;
  };
  ranges_.resize(planned.size());
  const auto make = [&](bool of_disks) {
    for (std::size_t i = 0; i < planned.size(); ++i)
      if ((planned[i].place.space == Space::disk) == of_disks)
        ranges_[i] = std::make_shared<Range>(planned[i], *devices.at(planned[i].place.device),
                                             has_fences(planned[i]) ? fence : 0);
  };
  // Hundreds of GiB of memory and of files take minutes, and neither waits for the other. Memory is got on
  // this thread: a device may have it prefer a node, for all that the thread gets later.
  std::packaged_task<void()> of_disks([&] { make(true); });
  std::future<void> files = of_disks.get_future();
  std::jthread thread;
  if (std::any_of(planned.begin(), planned.end(),
                  [](const Layout::Range& range) { return range.place.space == Space::disk; }))
    thread = start_thread<std::jthread>("the files of drives", std::ref(of_disks));
  make(false);
  if (thread.joinable()) files.get();
  for (std::size_t i = 0; i < planned.size(); ++i) {
    if (!has_fences(planned[i])) continue;
    std::byte* const begin = ranges_[i]->at(planned[i].begin);
    fences_.emplace_back(begin - fence, static_cast<std::size_t>(fence));
    fences_.emplace_back(begin + planned[i].bytes(), static_cast<std::size_t>(fence));
  }
}

PlanMemory::PlanMemory(const Program& program, const Plan& plan, const PlanMemory& base_program)
    : program_(program), plan_(plan), ranges_(base_program.ranges_), fences_(base_program.fences_) {
  for (std::size_t i = 0; i < plan.layout.ranges.size(); ++i)
    PRUN_CHECK(plan.layout.ranges[i].bytes() <= base_program.plan_.layout.ranges.at(i).bytes(), "range ", i);
}

// Returns the last range that begins there or before.
const PlanMemory::Range& PlanMemory::range_of(std::int64_t offset) const {
  const std::vector<Layout::Range>& planned = plan_.layout.ranges;
  const auto behind = std::find_if(planned.begin() + 1, planned.end(),
                                   [&](const Layout::Range& range) { return range.begin > offset; });
  return *ranges_[static_cast<std::size_t>(behind - planned.begin()) - 1];
}

void PlanMemory::clear() const {
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    const Layout::Range& planned = plan_.layout.ranges[i];
    std::byte* const begin = ranges_[i]->at(planned.begin);
    if (ranges_[i]->is_the_hosts())
      clear_by_threads({begin, static_cast<std::size_t>(planned.bytes())});
    else
      raise(ranges_[i]->device.clear(begin, planned.bytes()));
  }
}

std::int64_t PlanMemory::persistent(Id value, std::int32_t instance) const {
  return plan_.resolve(instance, plan_.allocation(value));
}

void PlanMemory::read(Id value, std::int32_t instance, std::int64_t first, std::span<std::byte> to) const {
  const std::int64_t offset = persistent(value, instance) + first;
  const Range& range = range_of(offset);
  if (range.is_the_hosts())
    std::copy_n(range.at(offset), to.size(), to.data());
  else
    raise(range.device.download(to.data(), range.at(offset), static_cast<std::int64_t>(to.size())));
}

void PlanMemory::write(Id value, std::int32_t instance, std::int64_t first,
                       std::span<const std::byte> from) const {
  const std::int64_t offset = persistent(value, instance) + first;
  const Range& range = range_of(offset);
  if (range.is_the_hosts())
    std::copy_n(from.data(), from.size(), range.at(offset));
  else
    raise(range.device.upload(range.at(offset), from.data(), static_cast<std::int64_t>(from.size())));
}

PlanMemory::Persistent PlanMemory::persistent_at(Id value, std::int32_t instance) const {
  const std::int64_t offset = persistent(value, instance);
  const Range& range = range_of(offset);
  return {range.at(offset), range.number()};
}

std::byte* PlanMemory::staged(Id id, std::int64_t step, std::int64_t microbatch) const {
  PRUN_CHECK(program_.value(id).role == Role::staging, "value '", program_.value(id).name, "' is not staged");
  Call call;
  call.microbatch = static_cast<std::int32_t>(microbatch);
  return at(plan_.resolve(call, plan_.allocation(id), plan_.side_of(step)));
}

namespace {

// ------------------------------------------------------------------- tensors

// Cuts the own part of a bucket's flat range to one member.
LocalPart cut(const Program& program, const Bucket& bucket, Id parameter, std::int64_t rank, Id own) {
  const BucketCut part = cut_of(program, bucket, parameter, rank);
  if (part.count == 0) return {};
  const std::int64_t block = program.value(own).block;
  return {own, program.value(own).dtype, part.at / block, part.first / block, part.count / block};
}

// Lists elements [first, first + count) of the rank's part of a parameter, from element `at` of an operand
// on.
void list_elements(const Program& program, std::int64_t rank, const LocalPart& have, Id parameter,
                   std::int64_t layer, std::vector<TensorElements>& list) {
  if (have.count == 0) return;
  const std::uint64_t name = name_hash(full_name(program, parameter, layer));
  const std::vector<Stretch> runs = stretches(program, parameter, rank);
  const std::int64_t run = runs.front().count, stride = runs.size() > 1 ? runs[1].whole - runs[0].whole : run;
  bool even = true;
  for (std::size_t i = 1; i < runs.size(); ++i) even &= runs[i].whole - runs[i - 1].whole == stride;
  if (even) {
    list.push_back({name, have.at, have.count, runs.front().whole, run, stride, have.first});
    return;
  }
  for (const Stretch& s : runs) {
    const std::int64_t begin = std::max(s.part, have.first),
                       end = std::min(s.part + s.count, have.first + have.count);
    if (begin < end)
      list.push_back({name, have.at + begin - have.first, end - begin, s.whole, run, run, begin - s.part});
  }
}

// Returns the value that an update reads a copy of, if it runs elsewhere.
Id copied_for_update(const Program& program, Id id) {
  for (Id op : program.segment(program.value(id).segment).ops(FunctionKind::update))
    if (program.op(op).def->copies && program.op(op).operands.back() == id)
      return program.op(op).operands.front();
  return id;
}

// Says whether a gradient makes room for others behind its update.
bool drops_gradient(const Program& program, Id parameter) {
  const Value& value = program.value(parameter);
  const Id gradient = value.bucket < 0 ? value.gradient : program.buckets()[value.bucket].own_gradients;
  return gradient != none && program.value(gradient).in_turn;
}

}  // namespace

std::vector<Stretch> stretches(const Program& program, Id id, std::int64_t rank) {
  return stretches(slice_of(program, id, rank));
}

LocalPart held_before(const Program& program, Id id, std::int64_t updates) {
  if (std::cmp_less(program.value(id).before.size(), updates)) return {};
  const Id before = program.as_before(id, updates);
  return {before, program.value(before).dtype, 0, 0, program.local_elements(id)};
}

LocalPart local_part(const Program& program, std::int64_t rank, Id id, Kept kept) {
  const Value& parameter = program.value(id);
  const auto all_of = [&](Id value) {
    return value == none ? LocalPart{}
                         : LocalPart{value, program.value(value).dtype, 0, 0, program.local_elements(id)};
  };
  if (kept == Kept::before) return held_before(program, id, 1);
  if (kept == Kept::gradient && drops_gradient(program, id)) return {};
  if (parameter.bucket < 0)
    return all_of(kept == Kept::parameter  ? id
                  : kept == Kept::gradient ? parameter.gradient
                                           : parameter.master);
  const Bucket& bucket = program.buckets()[parameter.bucket];
  if (kept == Kept::gradient && bucket.summed_in_update) return {};  // each rank has another gradient
  if (kept == Kept::parameter && !gathers_parameters(program, bucket)) return all_of(id);
  const Id value = kept == Kept::parameter  ? bucket.own_parameters
                   : kept == Kept::gradient ? bucket.own_gradients
                                            : bucket.master;
  return value == none ? LocalPart{} : cut(program, bucket, id, rank, value);
}

std::vector<LocalPart> local_states(const Program& program, std::int64_t rank, Id id) {
  const Value& parameter = program.value(id);
  std::vector<LocalPart> list;
  const auto add_whole = [&](Id state) {
    if (state != none)
      list.push_back({state, program.value(state).dtype, 0, 0, program.local_elements(state)});
  };
  for (const Id state : parameter.states) add_whole(state);
  if (parameter.bucket < 0) {
    for (const Id scale : parameter.scales) add_whole(scale);
    return list;
  }
  const Bucket& bucket = program.buckets()[parameter.bucket];
  for (const std::vector<Id>* const some : {&bucket.states, &bucket.scales})
    for (const Id state : *some)
      if (state != none) list.push_back(cut(program, bucket, id, rank, state));
  return list;
}

std::optional<std::vector<TensorElements>> updated_elements(const Program& program, std::int64_t rank, Id id,
                                                            std::int64_t layer) {
  std::vector<TensorElements> list;
  if (program.value(id).role == Role::activation) id = copied_for_update(program, id);
  const Value& value = program.value(id);
  if (value.role == Role::parameter) {
    const std::int64_t count = program.local_elements(id);
    list_elements(program, rank, {id, value.dtype, 0, 0, count}, id, layer, list);
    return list;
  }
  if (value.bucket < 0) return std::nullopt;
  const Bucket& bucket = program.buckets()[value.bucket];
  if (bucket.own_parameters != id) return std::nullopt;
  for (const Id parameter : bucket.parameters)
    list_elements(program, rank, cut(program, bucket, parameter, rank, id), parameter, layer, list);
  return list;
}

}  // namespace prun
