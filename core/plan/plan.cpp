#include "plan/plan.hpp"

#include <algorithm>
#include <numeric>

#include "plan/first_writers.hpp"
#include "plan/function.hpp"
#include "plan/limits.hpp"
#include "plan/order.hpp"
#include "plan/regions.hpp"
#include "plan/waits.hpp"

namespace prun {

const char* name_of(Region region) {
  constexpr const char* names[] = {
      "parameters", "gradients", "optimizer state",     "runtime",         "inputs",
      "boundaries", "saved",     "saved, leaving",      "saved, returned", "boundary gradients",
      "scratch",    "gathered",  "unreduced gradients", "buckets",         "updates",
      "batch",      "scalars",   "other programs"};
  return names[static_cast<int>(region)];
}

bool lasts(Region region) {
  return region == Region::parameter || region == Region::gradient || region == Region::state;
}

bool is_scratch(Region region) { return region == Region::scratch || region == Region::update; }

std::int64_t Memory::total() const { return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}); }

std::int64_t Layout::bytes_in_memory() const {
  std::int64_t bytes = 0;
  for (const Range& range : ranges)
    if (range.place.space != Space::disk) bytes += range.bytes();
  return bytes;
}

// Drives move what lies in memory of the host.
std::int64_t Layout::alignment_in(const Range& range) const {
  const bool drives = std::any_of(ranges.begin(), ranges.end(),
                                  [](const Range& other) { return other.place.space == Space::disk; });
  return drives && range.place.space != Space::device ? drive_alignment : alignment;
}

const Layout::Range* Layout::find(std::int64_t offset, std::int64_t bytes) const {
  for (const Range& range : ranges)
    if (range.begin <= offset && offset + bytes <= range.begin + range.bytes()) return &range;
  return nullptr;
}

std::span<const PlannedStep> Plan::steps(const Call& call) const {
  const PlannedFunction& function = functions[static_cast<std::size_t>(call.function)];
  const Piece& piece = function.pieces[static_cast<std::size_t>(call.piece)];
  return std::span(function.steps)
      .subspan(static_cast<std::size_t>(piece.first), static_cast<std::size_t>(piece.last - piece.first));
}

std::int32_t Plan::find(FunctionKind kind, std::int32_t instance) const {
  const Id segment = instances[static_cast<std::size_t>(instance)].segment;
  for (std::size_t f = 0; f < functions.size(); ++f)
    if (functions[f].segment == segment && functions[f].kind == kind) return static_cast<std::int32_t>(f);
  return -1;
}

std::vector<int> QueueInfo::members(const Mesh& mesh, std::int64_t rank) const {
  if (!communicates()) return {};
  const std::vector<int> group = mesh.group(rank, axis);
  if (peer < 0) return group;
  const int other = group[static_cast<std::size_t>(peer)], own = static_cast<int>(rank);
  return {std::min(own, other), std::max(own, other)};
}

std::vector<Instance> chain_of(const Program& program) {
  std::vector<Instance> chain;
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    for (std::int64_t layer = 0; layer < program.segment(segment).repeat; ++layer)
      chain.push_back({segment, layer, false});
  return chain;
}

Work whole_work(const Program& program, std::int64_t microbatches) {
  Work work;
  work.chunks.push_back({0, 0, static_cast<std::int32_t>(chain_of(program).size()), -1, -1});
  for (std::int32_t microbatch = 0; microbatch < microbatches; ++microbatch)
    for (const Pass pass : {Pass::forward, Pass::backward}) work.calls.push_back({pass, 0, microbatch});
  return work;
}

Work vertical_work(const Program& program, std::int64_t microbatches) {
  Work work;
  work.coordinate = 0;
  const auto stages = static_cast<std::int32_t>(chain_of(program).size());
  const auto add_calls = [&](Pass pass, std::int32_t stage) {
    for (std::int32_t microbatch = 0; microbatch < microbatches; ++microbatch)
      work.calls.push_back({pass, stage, microbatch});
  };
  for (std::int32_t stage = 0; stage < stages; ++stage) {
    work.chunks.push_back({stage, stage, stage + 1, stage > 0 ? 0 : -1, stage + 1 < stages ? 0 : -1});
    add_calls(Pass::forward, stage);
  }
  for (std::int32_t stage = stages; stage-- > 0;) add_calls(Pass::backward, stage);
  return work;
}

Work forward_work(Work work) {
  std::erase_if(work.calls, [](const ScheduleCall& call) { return call.pass != Pass::forward; });
  work.split = false;
  work.tied_to = -1;
  return work;
}

void make_room(Plan& plan, const Plan& above) {
  constexpr auto others = static_cast<std::size_t>(Region::others);
  for (std::size_t r = 0; r < above.layout.ranges.size(); ++r) {
    const Layout::Range& needs = above.layout.ranges[r];
    if (r == plan.layout.ranges.size()) {
      Layout::Range& fresh = plan.layout.ranges.emplace_back();
      fresh.place = needs.place;
      fresh.begin = needs.begin;
    }
    Layout::Range& has = plan.layout.ranges[r];
    const std::int64_t more = std::max<std::int64_t>(0, needs.bytes() - has.bytes());
    has.memory.bytes[others] += more;
    plan.layout.memory.bytes[others] += more;
  }
}

const Address& Plan::home(Id value) const {
  const auto found = homes.find(value);
  PRUN_CHECK(found != homes.end(), "value ", value, " has no home");
  return found->second;
}

std::int64_t Plan::resolve(std::int32_t instance, const Address& home) const {
  PRUN_CHECK(lasts(home.region), "what lies in ", name_of(home.region), " is not there from step to step");
  Call call;
  call.instance = instance;
  return resolve(call, home, 0);
}

std::int64_t Plan::resolve(const Call& call, const Address& address, int side) const {
  std::int32_t instance = call.instance;
  if (address.whose == Whose::previous) --instance;
  if (address.whose == Whose::fixed) instance = address.instance;
  const Layout::Range& range = layout.ranges[static_cast<std::size_t>(address.range)];
  const auto of_instance = [&] {
    return range.instances[static_cast<std::size_t>(address.region)][static_cast<std::size_t>(instance)];
  };
  const std::int64_t part = address.part_axis == no_axis ? 0 : coordinates[address.part_axis] * address.bytes;
  switch (address.region) {
    case Region::parameter:
    case Region::gradient:
    case Region::state:
    case Region::gathered:
    case Region::unreduced:
    case Region::update:
    case Region::bucket: return of_instance().base + address.offset + part;
    case Region::leaving:
    case Region::returned:
      return of_instance().base + turn_of(instance, call.slot) * of_instance().stride + address.offset;
    case Region::boundary_gradient:
    case Region::slot:
    case Region::boundary: {
      const bool stub = instances[static_cast<std::size_t>(instance)].receive_stub;
      const std::int32_t slot = stub ? call.stub_slot : call.slot;
      return of_instance().base + slot * of_instance().stride + address.offset;
    }
    case Region::runtime: return range.runtime + address.offset;
    case Region::scratch: return range.scratch + address.offset;
    case Region::input:
      return layout.input.base + (call.microbatch % input_slots) * layout.input.stride + address.offset;
    case Region::batch:
      return layout.batch.base + side * layout.batch_side + call.microbatch * layout.batch.stride +
             address.offset;
    case Region::scalars: return layout.scalars.base + side * layout.scalars.stride + address.offset;
    case Region::others: break;
  }
  return -1;
}

namespace {

Region region_of(const Value& value) {
  if (value.in_turn) return Region::unreduced;
  switch (value.role) {
    case Role::parameter: return Region::parameter;
    case Role::gradient: return Region::gradient;
    case Role::state: return Region::state;
    case Role::runtime: return Region::runtime;
    case Role::input: return Region::input;
    case Role::fetched: return Region::gathered;
    default: return Region::scratch;
  }
}

// What no exchange, no neighbour in the chain and no other instance's turn asks for.
bool may_lie_anywhere(Region region) {
  return lasts(region) || region == Region::runtime || region == Region::slot;
}

class Planner {
 public:
  Planner(const Program& program, const Lowering& lowering, std::int64_t microbatches, std::int64_t rank,
          const Work& work, const Beneath* beneath)
      : program_(program), lowering_(lowering), work_(work), beneath_(beneath) {
    for (AxisId axis = 0; axis < program.mesh().size(); ++axis)
      plan_.coordinates.push_back(program.mesh().coordinate(rank, axis));
    plan_.microbatches = microbatches;
    // A pipeline comes back to each of them later.
    if (work.interleaves()) plan_.input_slots = microbatches;
    plan_.queues = {{"compute", true, no_axis, 0, -1, 0}, {"copy", false, no_axis, 0, -1, 0}};
    for (const Space space : {Space::device, Space::pinned}) prun::range_of(plan_.layout, {0, space});
    if (beneath)
      for (const Layout::Range& range : beneath->plan.layout.ranges)
        prun::range_of(plan_.layout, range.place);
    sizes_.resize(program.segment_count());
  }

  Plan run() {
    PRUN_CHECK(lowering_.devices.size() == program_.more_devices().size() + 1, lowering_.devices.size(),
               " devices");
    make_instances();
    for (Id segment = 0; segment < program_.segment_count(); ++segment) place_values(segment);
    check_places();
    if (work_.tied_to >= 0) add_queue(axis_name() + ".tie", work_.tied_to);
    for (Id segment = 0; segment < program_.segment_count(); ++segment) plan_functions(segment);
    for (std::size_t chunk = 0; chunk < plan_.chunks.size(); ++chunk) plan_transfers(chunk);
    mark_dead_sums();
    const Bundles bundles = choose_bundles();
    const Turns gathered = take_gathered_turns(bundles.uses, bytes_of(Region::gathered)),
                unreduced = take_unreduced_turns(plan_, work_, bundles.reduced, bytes_of(Region::unreduced));
    order_calls(work_, bundles, gathered, plan_);
    choose_first_writers(program_, plan_);
    place_regions(program_, work_, sizes_, {gathered, unreduced, bundles.reduced, lowering_.far_ahead},
                  beneath_ ? &beneath_->plan.layout : nullptr, plan_);
    mark_dead_slots();
    derive_waits(program_, plan_);
    return std::move(plan_);
  }

 private:
  Bundles choose_bundles() const {
    const auto bundling = [&](FunctionKind kind) { return Bundling(plan_, kind, lowering_.bundle); };
    std::vector<std::int32_t> updated;
    for (std::size_t i = 1; i < plan_.instances.size(); ++i)
      if (const auto at = static_cast<std::int32_t>(i);
          !plan_.instances[i].receive_stub && plan_.find(FunctionKind::update, at) >= 0)
        updated.push_back(at);
    return {gathered_uses(plan_, work_, bundling(FunctionKind::gather)),
            reduced_together(plan_, work_, bundling(FunctionKind::reduce)),
            bundling(FunctionKind::update).of(updated)};
  }

  std::vector<std::int64_t> bytes_of(Region region) const {
    return bytes_by_instance(plan_, sizes_, region, 0);
  }

  // Chunks by stage, so that one lies behind the one it goes on from.
  void make_instances() {
    first_instance_.assign(program_.segment_count(), -1);
    add_instance({program_.step_segment(), 0, false});
    plan_.chunks.resize(work_.chunks.size());
    std::vector<std::size_t> order(work_.chunks.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return work_.chunks[a].stage < work_.chunks[b].stage; });
    const std::vector<Instance> chain = chain_of(program_);
    for (std::size_t i = 0; i < order.size(); ++i) {
      const ChunkWork& work = work_.chunks[order[i]];
      Chunk& chunk = plan_.chunks[order[i]];
      chunk.stage = work.stage;
      if (work.from >= 0 && work.from == work_.coordinate)
        chunk.follows = static_cast<std::int32_t>(order[i - 1]);
      if (work.from >= 0 && work.from != work_.coordinate) {
        Instance stub = chain[static_cast<std::size_t>(work.first) - 1];
        stub.receive_stub = true;
        chunk.stub = add_instance(stub);
      }
      chunk.first = static_cast<std::int32_t>(plan_.instances.size());
      for (std::int32_t at = work.first; at < work.last; ++at)
        add_instance(chain[static_cast<std::size_t>(at)]);
      chunk.last = static_cast<std::int32_t>(plan_.instances.size());
    }
  }

  std::int32_t add_instance(const Instance& instance) {
    const auto at = static_cast<std::int32_t>(plan_.instances.size());
    plan_.instances.push_back(instance);
    if (!instance.receive_stub && first_instance_[instance.segment] < 0)
      first_instance_[instance.segment] = at;
    return at;
  }

  Address& home(Id value, Region region, Id segment) {
    return plan_.homes[value] = take(value, region, segment);
  }

  // Room for one repetition of a segment, whose it is, or what there is beneath.
  Address take(Id value, Region region, Id segment) {
    if (beneath_ && lasts(region)) return home_beneath(value);
    const std::int32_t range = range_of(value, region);
    const std::int64_t bytes = program_.local_bytes(value);
    const Space space = plan_.layout.ranges[static_cast<std::size_t>(range)].place.space;
    const std::int64_t fence = lowering_.fence_in(space);
    std::int64_t& used = sizes_[segment].of(region, range);
    const std::int64_t offset = used + fence;
    used += align(bytes + 2 * fence, space == Space::disk ? drive_alignment : alignment);
    return {region, Whose::own, -1, offset, bytes, no_axis, range};
  }

  // Of the value of the same name.
  Address home_beneath(Id id) const {
    const Value& value = program_.value(id);
    const Program& other = beneath_->program;
    for (Id candidate : other.segment(value.segment).values)
      if (other.value(candidate).name == value.name && other.value(candidate).dtype == value.dtype)
        if (const auto home = beneath_->plan.homes.find(candidate);
            home != beneath_->plan.homes.end() && home->second.bytes == program_.local_bytes(id))
          return home->second;
    throw_error(ErrorCode::internal, "segment '", program_.segment(value.segment).name, "', value '",
                value.name, "' of ", program_.local_bytes(id), " bytes is not in the plan beneath");
  }

  std::int32_t range_of(Id value, Region region) {
    const bool staged = region == Region::batch || region == Region::scalars;
    const MemoryPlace usual{0, staged ? Space::pinned : Space::device};
    return prun::range_of(plan_.layout,
                          may_lie_anywhere(region) ? program_.value(value).place.value_or(usual) : usual);
  }

  // What lies with others cannot lie elsewhere.
  void check_places() const {
    for (const auto& [id, address] : plan_.homes) {
      const Value& value = program_.value(id);
      const MemoryPlace lies = plan_.layout.ranges[static_cast<std::size_t>(address.range)].place;
      if (!value.place || *value.place == lies) continue;
      throw_error(ErrorCode::bad_input, "segment '", program_.segment(value.segment).name, "', value '",
                  value.name, "' is to lie in ", name_of(value.place->space), " of device ",
                  value.place->device, ", but is one of the ", name_of(address.region),
                  " that lie together in ", name_of(lies.space), " of device ", lies.device,
                  "; place a copy of it");
    }
  }

  // Persistent values, and activations that outlive the function that writes them.
  void place_values(Id segment_id) {
    const SegmentData& segment = program_.segment(segment_id);
    for (const Bucket& bucket : program_.buckets())
      if (bucket.segment == segment_id) place_bucket(bucket);
    for (Id id : in_canonical_order(segment.values)) {
      const Value& value = program_.value(id);
      if (value.role == Role::staging) {
        home(id, is_loaded(id) ? Region::batch : Region::scalars, segment_id);
        continue;
      }
      Address& address = home(id, region_of(value), segment_id);
      // Unrepeated segments' values may be used by others (tied weights): name their instance.
      if (segment.repeat == 1) {
        address.whose = Whose::fixed;
        address.instance = first_instance_[segment_id];
      }
    }
    home_of_incoming(segment.incoming, Region::boundary);
    home_of_incoming(segment.incoming_gradient, Region::boundary_gradient);
    if (segment.outgoing != none) home(segment.outgoing, Region::boundary, segment_id);
    if (segment.outgoing_gradient != none)
      home(segment.outgoing_gradient, Region::boundary_gradient, segment_id);
    for (const auto& [id, writer] : saved_values(segment)) home(id, region_of_saved(id, writer), segment_id);
  }

  // Whether a staged value is a microbatch's; the others are a step's.
  bool is_loaded(Id staged) const {
    const std::vector<Id>& loads = program_.segment(program_.step_segment()).ops(FunctionKind::load);
    return std::any_of(loads.begin(), loads.end(),
                       [&](Id op) { return program_.op(op).operands.front() == staged; });
  }

  // Where the instance before has what it hands on.
  void home_of_incoming(Id value, Region region) {
    if (value != none)
      plan_.homes[value] = {region, Whose::previous, -1, lowering_.fence, program_.local_bytes(value)};
  }

  // Gradients in the order of their parameters, whatever the order in which backward needed them first: a
  // reduction packs them as they lie.
  std::vector<Id> in_canonical_order(const std::vector<Id>& values) const {
    std::vector<Id> ordered;
    for (Id id : values) {
      const Value& value = program_.value(id);
      if (value.role == Role::view || (value.role == Role::parameter && value.bucket >= 0)) continue;
      if (value.role != Role::activation && (value.role != Role::gradient || value.in_turn))
        ordered.push_back(id);
      if (value.role == Role::parameter && value.gradient != none) ordered.push_back(value.gradient);
    }
    return ordered;
  }

  // The members side by side, and the views over them. What is not kept whole lies in memory that instances
  // have in turn.
  void place_bucket(const Bucket& bucket) {
    const bool repeats = program_.segment(bucket.segment).repeat > 1;
    const auto place = [&](Region region, const std::vector<Id>& members, Id all, Id own) {
      Address whole = take(all, region, bucket.segment);
      if (!repeats) {
        whole.whose = Whose::fixed;
        whole.instance = first_instance_[bucket.segment];
      }
      set_home(all, whole, whole);
      for (std::size_t i = 0; i < members.size(); ++i) {
        Address member = whole;
        member.offset += bucket.offsets[i] * size_of(program_.value(all).dtype);
        member.bytes = program_.local_bytes(members[i]);
        set_home(members[i], member, whole);
      }
      if (program_.value(own).role == Role::view) place_part(own, bucket.axis, whole);
      return whole;
    };
    const Address parameters = place(bucket.kept.parameters ? Region::gathered : Region::parameter,
                                     bucket.parameters, bucket.all_parameters, bucket.own_parameters);
    if (bucket.own_fetched != none) place_part(bucket.own_fetched, bucket.axis, parameters);
    if (bucket.all_gradients == none) return;  // frozen
    std::vector<Id> gradients;
    for (Id id : bucket.parameters) gradients.push_back(program_.value(id).gradient);
    place(bucket.kept.gradients ? Region::unreduced : Region::gradient, gradients, bucket.all_gradients,
          bucket.own_gradients);
    const Address whole = around_.at(bucket.all_gradients);
    if (bucket.own_sums != none) place_part(bucket.own_sums, bucket.axis, whole);
    for (const Bucket::Padding& padding : bucket.padding) {
      Address between = whole;
      between.offset += padding.offset * size_of(program_.value(padding.view).dtype);
      between.bytes = program_.local_bytes(padding.view);
      set_home(padding.view, between, whole);
    }
  }

  void place_part(Id own, AxisId axis, const Address& whole) {
    Address part = whole;
    part.bytes = program_.local_bytes(own);
    part.part_axis = axis;
    set_home(own, part, whole);
  }

  void set_home(Id value, const Address& address, const Address& around) {
    plan_.homes[value] = address;
    around_[value] = around;
  }

  Region region_of_saved(Id id, FunctionKind writer) const {
    if (!program_.value(id).in_turn) return Region::slot;
    return writer == FunctionKind::forward ? Region::leaving : Region::returned;
  }

  struct Saved {
    Id value = none;
    FunctionKind writer = FunctionKind::forward;
  };
  // Written by one of a microbatch's functions and read by a later one.
  std::vector<Saved> saved_values(const SegmentData& segment) const {
    std::vector<Saved> saved;
    std::map<Id, FunctionKind> writer;
    const auto is_saved = [&](Id id) {
      return std::any_of(saved.begin(), saved.end(), [&](const Saved& one) { return one.value == id; });
    };
    for (FunctionKind kind : {FunctionKind::forward, FunctionKind::put_away, FunctionKind::bring_back,
                              FunctionKind::backward, FunctionKind::backward_weight})
      for (Id op_id : segment.ops(kind)) {
        const Op& op = program_.op(op_id);
        for (std::size_t i = 0; i < op.operands.size(); ++i) {
          const Id value = op.operands[i];
          if (value == none || program_.value(value).role != Role::activation ||
              plan_.homes.count(value) != 0)
            continue;
          if (op.access(i) == Access::write)
            writer[value] = kind;
          else if (writer.at(value) != kind && !is_saved(value))
            saved.push_back({value, writer.at(value)});
        }
      }
    return saved;
  }

  // Nothing of a segment that other ranks hold.
  void plan_functions(Id segment) {
    if (first_instance_[segment] < 0) return;
    for (int k = 0; k < function_kinds; ++k) {
      const auto kind = static_cast<FunctionKind>(k);
      if (program_.segment(segment).ops(kind).empty()) continue;
      plan_.functions.push_back(plan_function(program_, lowering_, around_, segment, kind, plan_));
    }
  }

  // ------------------------------------------------------------- from stage to stage

  const std::string& axis_name() const { return program_.mesh().name(work_.axis); }

  std::int32_t add_queue(const std::string& name, std::int64_t peer) {
    plan_.queues.push_back({name, false, work_.axis, 0, peer, 0});
    return static_cast<std::int32_t>(plan_.queues.size()) - 1;
  }

  // Each way between two stages has a queue of its own, so that nothing waits for what it does not need.
  void plan_transfers(std::size_t index) {
    Chunk& chunk = plan_.chunks[index];
    const ChunkWork& work = work_.chunks[index];
    if (chunk.stub >= 0) {
      chunk.receive = plan_transfer(chunk.stub, FunctionKind::receive, work.stage - 1, work.from);
      chunk.send_gradient = plan_transfer(chunk.stub, FunctionKind::send_gradient, work.stage - 1, work.from);
    }
    if (work.to >= 0 && work.to != work_.coordinate) {
      chunk.send = plan_transfer(chunk.last - 1, FunctionKind::send, work.stage, work.to);
      chunk.receive_gradient =
          plan_transfer(chunk.last - 1, FunctionKind::receive_gradient, work.stage, work.to);
    }
  }

  // Of what stage `stage` hands on, or of its gradient; -1 where there is none.
  std::int32_t plan_transfer(std::int32_t instance, FunctionKind kind, std::int32_t stage,
                             std::int64_t peer) {
    const Id segment = plan_.instances[static_cast<std::size_t>(instance)].segment;
    const bool gradient = kind == FunctionKind::send_gradient || kind == FunctionKind::receive_gradient;
    const bool sends = kind == FunctionKind::send || kind == FunctionKind::send_gradient;
    const Id value =
        gradient ? program_.segment(segment).outgoing_gradient : program_.segment(segment).outgoing;
    if (value == none) return -1;
    PlannedExchange exchange;
    exchange.kind = sends ? CommKind::send : CommKind::recv;
    exchange.dtype = program_.value(value).dtype;
    exchange.count = program_.local_elements(value);
    exchange.peer = peer < work_.coordinate ? 0 : 1;
    (sends ? exchange.in : exchange.out) = plan_.home(value);
    PlannedStep step;
    step.exchange = exchange;
    step.operands.push_back({value, plan_.home(value)});
    PlannedFunction function;
    function.segment = segment;
    function.kind = kind;
    function.steps.push_back(std::move(step));
    function.pieces.push_back(
        {0, 1, add_queue(detail::concat(axis_name(), gradient ? ".backward." : ".forward.", stage), peer)});
    plan_.functions.push_back(std::move(function));
    return static_cast<std::int32_t>(plan_.functions.size()) - 1;
  }

  // ------------------------------------------------------------- memory

  static bool is_backward(FunctionKind kind) {
    return kind == FunctionKind::backward || kind == FunctionKind::backward_weight;
  }

  // A saved value dies with its last reader in backward (or backward_weight).
  void mark_dead_slots() {
    for (Id segment = 0; segment < program_.segment_count(); ++segment) {
      std::map<Id, PlannedStep*> last;
      for (PlannedFunction& function : plan_.functions)
        if (function.segment == segment && is_backward(function.kind))
          for (PlannedStep& step : function.steps)
            for (const PlannedOperand& operand : step.operands)
              if (operand.value != none && operand.address.region == Region::slot)
                last[operand.value] = &step;
      for (const auto& [value, step] : last) step->dead_after.push_back(plan_.home(value));
    }
  }

  // Sums of a microbatch die when they are handed to the sum over the ranks; those of the step before when
  // the next begins, since the host may look at them in between; not those that updates on another device
  // have copies of, for which the next would have to wait.
  void mark_dead_sums() {
    for (const Bucket& bucket : program_.buckets())
      if (bucket.all_gradients != none && bucket.kept.gradients) mark_dead_blocks(bucket);
    mark_dead_in_turn();
    PlannedStep* const begin = first_of_step();
    if (!begin) return;
    for (std::size_t i = 0; i < plan_.instances.size(); ++i) {
      const Instance& instance = plan_.instances[i];
      const SegmentData& segment = program_.segment(instance.segment);
      if (instance.receive_stub || segment.device_of(FunctionKind::update) != 0) continue;
      for (Id id : segment.values)
        if (const auto home = plan_.homes.find(id); home != plan_.homes.end() && is_sum_of_step(id)) {
          begin->dead_after.push_back(home->second);
          begin->dead_after.back().whose = Whose::fixed;
          begin->dead_after.back().instance = static_cast<std::int32_t>(i);
        }
    }
  }

  void mark_dead_blocks(const Bucket& bucket) {
    PlannedStep* last = nullptr;
    for (PlannedFunction& function : plan_.functions)
      if (function.segment == bucket.segment && function.kind == FunctionKind::reduce)
        for (PlannedStep& step : function.steps)
          for (const PlannedOperand& operand : step.operands)
            if (operand.value == bucket.all_gradients ||
                (operand.value != none && operand.value == bucket.own_sums))
              last = &step;
    for (std::size_t m = 0; last && m < bucket.parameters.size(); ++m)
      last->dead_after.push_back(plan_.home(program_.value(bucket.parameters[m]).gradient));
  }

  // A copy is the last to read one.
  void mark_dead_in_turn() {
    for (PlannedFunction& function : plan_.functions)
      for (PlannedStep& step : function.steps)
        if (function.kind == FunctionKind::reduce && step.kernel && program_.op(step.op).def->copies &&
            program_.value(step.operands.front().value).in_turn)
          step.dead_after.push_back(step.operands.front().address);
  }

  PlannedStep* first_of_step() {
    for (PlannedFunction& function : plan_.functions)
      if (function.kind == FunctionKind::begin) return &function.steps.front();
    return nullptr;
  }

  bool is_sum_of_step(Id id) const {
    const Value& value = program_.value(id);
    if (value.bucket < 0) return value.role == Role::gradient && !value.in_turn;
    const Bucket& bucket = program_.buckets()[static_cast<std::size_t>(value.bucket)];
    return bucket.kept.gradients ? id == bucket.own_gradients : value.role == Role::gradient;
  }

  const Program& program_;
  const Lowering& lowering_;
  const Work& work_;
  const Beneath* const beneath_;
  Plan plan_;
  Homes around_;                    // of values that lie side by side with others: the range of all of them
  std::vector<RegionBytes> sizes_;  // by segment
  std::vector<std::int32_t> first_instance_;  // by segment; -1: this rank has none
};

}  // namespace

Plan make_plan(const Program& program, const Lowering& lowering, std::int64_t microbatches,
               std::int64_t rank) {
  check_launches(program, microbatches);
  return make_plan(program, lowering, microbatches, rank, whole_work(program, microbatches));
}

Plan make_plan(const Program& program, const Lowering& lowering, std::int64_t microbatches, std::int64_t rank,
               const Work& work, const Beneath* beneath) {
  check_launches(program, microbatches);
  Plan plan = Planner(program, lowering, microbatches, rank, work, beneath).run();
  check_plan(program, plan);
  if (beneath) check_over(program, plan, *beneath);
  return plan;
}

double segment_flops(const Program& program, Id segment) {
  double flops = 0;
  for (Id id : program.segment(segment).ops(FunctionKind::forward)) {
    const Op& op = program.op(id);
    const OpCost cost = op.cost(program.shape(op));
    flops += (op.def->gradient_in_forward ? 1 : 3) * (cost.flops - cost.repeated);
  }
  return flops;
}

double model_flops(const Program& program) {
  double flops = 0;
  for (Id id = 0; id < program.segment_count(); ++id)
    flops += segment_flops(program, id) * static_cast<double>(program.segment(id).repeat);
  return flops;
}

}  // namespace prun
