#include "train/checkpoint/weights.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>

#include "base/floats.hpp"
#include "base/random.hpp"
#include "base/thread.hpp"
#include "execute/device_memory.hpp"
#include "execute/tensors.hpp"
#include "program/passes.hpp"

namespace prun {
namespace {

// Names elements of a parameter, and where this rank holds them: in the parameter, in its master copy, in
// what passes read in its place, or in several of these.
struct Filling {
  Id parameter = none;
  std::int64_t layer = 0;
  std::int64_t whole = 0, count = 0;
  std::vector<HeldRun> places;
  bool frozen = false;  // no update ever rounds it
};

// Cuts a run where multiples of `most` elements lie in the whole tensor, and calls add(piece) for each.
template <class Add>
void each_piece(const HeldRun& run, std::int64_t most, Add&& add) {
  for (std::int64_t at = 0; at < run.count;) {
    HeldRun part = run;
    part.offset += at * size_of(run.type);
    part.whole += at;
    part.count = std::min(most - part.whole % most, run.count - at);
    add(part);
    at += part.count;
  }
}

// Lists states of strategies that start as other numbers than zeros, which memory has.
void list_states(const Assembly& assembly, std::int64_t most, std::vector<Filling>& list) {
  const Program& program = assembly.program();
  assembly.each_kept_state([&](Id id, std::int32_t instance) {
    const Value& state = program.value(id);
    const bool zeros = state.init.kind == Init::Kind::constant && state.init.value == 0;
    if (zeros && state.starts_as == none) return;
    const Id numbers = state.starts_as != none ? state.starts_as : id;
    each_run(program, assembly.rank(), id, instance, {id, state.dtype, 0, 0, program.local_elements(id)},
             [&](const HeldRun& run) {
               each_piece(run, most, [&](const HeldRun& piece) {
                 const std::int64_t layer = assembly.plan().instances[instance].layer;
                 list.push_back({numbers, layer, piece.whole, piece.count, {piece}, false});
               });
             });
  });
}

// Returns the fillings: only what this rank holds is made, and that once. Runs are cut where multiples of
// `most` elements lie in the whole parameter, so that the pieces of both are the same.
std::vector<Filling> fillings(const Assembly& assembly, std::int64_t most) {
  std::vector<Filling> list;
  assembly.each_parameter([&](Id id, std::int32_t instance) {
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<HeldRun>> pieces;
    const auto add = [&](const HeldRun& run) {
      each_piece(run, most, [&](const HeldRun& part) { pieces[{part.whole, part.count}].push_back(part); });
    };
    const Program& program = assembly.program();
    const Instance& of = assembly.plan().instances[instance];
    for (const Kept kept : {Kept::parameter, Kept::master})
      each_held(program, assembly.rank(), id, instance, kept, add);
    for (std::int32_t updates = 1; updates <= of.delay; ++updates)
      each_run(program, assembly.rank(), id, instance, held_before(program, id, updates), add);
    const std::int64_t layer = of.layer;
    for (auto& [elements, places] : pieces)
      list.push_back(
          {id, layer, elements.first, elements.second, std::move(places), program.value(id).frozen});
  });
  list_states(assembly, most, list);
  return list;
}

// Calls draw(filling, numbers), which gives a filling's numbers.
using Draw = std::function<void(const Filling& filling, std::span<float> numbers)>;

Draw from_seed(const Assembly& assembly) {
  const auto seed = static_cast<std::uint64_t>(assembly.recipe().integer("run.seed"));
  return [&assembly, seed](const Filling& f, std::span<float> numbers) {
    const Init& init = assembly.program().value(f.parameter).init;
    const std::uint64_t stream = stream_id(full_name(assembly.program(), f.parameter, f.layer));
    if (init.kind == Init::Kind::normal)
      RandomStream(seed, stream).fill_normal(numbers, static_cast<std::uint64_t>(f.whole), 0.0, init.value);
    else
      std::fill(numbers.begin(), numbers.end(), static_cast<float>(init.value));
  };
}

// Holds what a thread needs to fill parameters: it draws, converts and copies one piece at a time.
class Filler {
 public:
  // Takes the number of elements of a piece, and of the bytes that they are converted to.
  Filler(DeviceInterface& device, std::int64_t elements, std::int64_t converted_bytes)
      : numbers_(device, elements * size_of(DType::f32)), converted_(device, converted_bytes) {}

  void fill(const Filling& f, const Draw& draw, const PlanMemory& memory) {
    const std::span<float> numbers(reinterpret_cast<float*>(numbers_.data()),
                                   static_cast<std::size_t>(f.count));
    draw(f, numbers);
    for (const HeldRun& run : f.places)
      memory.write(run.value, run.instance, run.offset, as(run.type, numbers, f.frozen));
  }

 private:
  // Numbers are drawn in fp32 whatever the precision, so that fp64, fp32 and bf16 runs start alike. What
  // is trained is rounded as updates round it.
  std::span<const std::byte> as(DType type, std::span<const float> numbers, bool frozen) {
    if (type == DType::f32) return std::as_bytes(numbers);
    auto* const to = static_cast<std::byte*>(converted_.data());
    (frozen ? store_nearest : store_floats)(type, numbers, to);
    return {to, numbers.size() * static_cast<std::size_t>(size_of(type))};
  }

  Pinned numbers_, converted_;
};

}  // namespace

namespace {

// Fills all parameters, or those that are chosen.
void fill(const Assembly& assembly, const PlanMemory& memory, const StartValues* start,
          const std::set<Id>* chosen) {
  // A piece stays in a core's cache; for a copy to a device it is long enough to be worth its start, and from
  // a file it is as long as what has a checksum.
  const DeviceInfo& info = assembly.device_info();
  const std::int64_t most = start ? 1 << 20 : info.host_memory ? 1 << 16 : 1 << 18;
  std::vector<Filling> list = fillings(assembly, most);
  if (chosen)
    std::erase_if(list, [&](const Filling& filling) { return !chosen->contains(filling.parameter); });
  std::int64_t elements = 0, converted_bytes = 0;
  for (const Filling& filling : list) {
    elements = std::max(elements, filling.count);
    for (const HeldRun& run : filling.places)
      if (run.type != DType::f32) converted_bytes = std::max(converted_bytes, run.count * size_of(run.type));
  }
  const Draw seed = from_seed(assembly);
  const Draw draw = [&](const Filling& f, std::span<float> to) {
    const bool given = start && assembly.program().value(f.parameter).role == Role::parameter;
    given && start->has(f.parameter) ? start->read(f.parameter, f.layer, f.whole, to) : seed(f, to);
  };
  const std::size_t threads = host_threads(info, assembly.mesh().world());
  std::deque<Filler> fillers;
  for (std::size_t t = 0; t < threads; ++t)
    fillers.emplace_back(*assembly.devices().front(), elements, converted_bytes);
  share_out(threads, list.size(),
            [&](std::size_t t, std::size_t i) { fillers[t].fill(list[i], draw, memory); });
}

}  // namespace

void initialize(const Assembly& assembly, const PlanMemory& memory, const StartValues* start) {
  fill(assembly, memory, start, nullptr);
}

void initialize_new(const Assembly& assembly, const PlanMemory& memory, const std::set<Id>& parameters) {
  if (!parameters.empty()) fill(assembly, memory, nullptr, &parameters);
}

void initialize_base(const Assembly& assembly, const PlanMemory& memory, const StartValues& base) {
  std::set<Id> parameters;
  for (const Id id : assembly.program().parameters())
    if (assembly.program().value(id).in_base) parameters.insert(id);
  fill(assembly, memory, &base, &parameters);
}

}  // namespace prun
