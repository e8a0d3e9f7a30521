#include "updates.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "spread.hpp"
#include "tiles.hpp"

namespace prun {
namespace {

constexpr std::size_t ahead = 3;  // number of tiles there at once: one arrives, one is updated, one leaves

// Moves the updates of one program, and brings them what they need.
class UpdatesElsewhere {
 public:
  UpdatesElsewhere(ProgramRef program, std::int32_t device, const UpdatePlaces& stored_places, bool tiled)
      : program_(program), device_(device), stored_places_(stored_places), users_(program), tiled_(tiled) {}

  void run() {
    for (const Segment& segment : program_.segments())
      if (!segment.operations(FunctionKind::update).empty()) move(segment);
  }

 private:
  struct Copies {
    std::map<Id, Id> states, others;  // copies by their originals
  };

  // Moves updates. What a tile's updates need comes two tiles ahead of them, and what they change goes back
  // behind them: three tiles are there at once. The last goes back before what follows the updates (a gather)
  // reads it.
  void move(const Segment& segment) {
    const std::vector<Id> ops = segment.operations(FunctionKind::update);
    check_meets_nowhere(segment, ops);
    const std::vector<Tile> tiles = tiles_of(program_, ops, tiled_);
    Copies copies;
    const auto fetch = [&](std::size_t tile, Id before) {
      for (const Id op : tiles[tile]) move_states(segment, op, before, copies.states);
      for (const Id op : tiles[tile])
        if (device_ != own_device) move_operands(segment, op, before, copies.others);
    };
    const std::vector<std::set<Id>> done = written_last(tiles);
    for (std::size_t t = 0; t < std::min(ahead, tiles.size()); ++t) fetch(t, tiles.front().front());
    if (device_ != own_device) segment.run_on(FunctionKind::update, device_);
    for (std::size_t t = 0; t < tiles.size(); ++t) {
      const Id next = t + 1 < tiles.size() ? tiles[t + 1].front() : behind(ops);
      if (t > 0 && t + ahead - 1 < tiles.size()) fetch(t + ahead - 1, tiles[t].front());
      for (const std::map<Id, Id>* const some : {&copies.others, &copies.states})
        for (const auto& [value, copy] : *some)
          if (done[t].count(value) != 0) write_copy(segment, FunctionKind::update, copy, next, value);
    }
  }

  // Returns, by tile, the values that no later tile changes.
  std::vector<std::set<Id>> written_last(const std::vector<Tile>& tiles) const {
    std::map<Id, std::size_t> last;
    for (std::size_t t = 0; t < tiles.size(); ++t)
      for (const Id op : tiles[t])
        for (const Id value : operands_of(program_.op(op)))
          if (value != none && users_.updates_write(value)) last[value] = t;
    std::vector<std::set<Id>> written(tiles.size());
    for (const auto& [value, tile] : last) written[tile].insert(value);
    return written;
  }

  // Returns where updates find what lies too far away for them.
  MemoryPlace at_hand() const { return {device_, device_ == own_device ? Space::device : Space::host}; }

  bool is_state(Id value) const { return stored_places_.states.count(value) != 0; }
  bool reaches(MemoryPlace stored) const {
    return device_ == own_device ? stored == MemoryPlace{} : stored.space == Space::host;
  }
  // Returns the same for a place: drives reach only memory of the host's device, the recipe's device only
  // pinned memory.
  MemoryPlace at_hand(MemoryPlace stored) const {
    return device_ != own_device && stored == MemoryPlace{} ? pinned : at_hand();
  }

  // Copies state first if updates do not reach it where it lies: that takes longest.
  void move_states(const Segment& segment, Id op, Id first, std::map<Id, Id>& copies) {
    const std::vector<Id> operands = operands_of(program_.op(op));
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (!is_state(operands[i])) continue;
      const MemoryPlace stored = stored_places_.states.at(operands[i]);
      program_.place(operands[i], stored);
      if (!reaches(stored))
        program_.replace_operand(op, static_cast<int>(i),
                                 copied(segment, operands[i], first, at_hand(stored), copies));
    }
  }

  // Returns the first of the exchanges that follow all updates, if there are any.
  Id behind(const std::vector<Id>& ops) const {
    const auto last = std::find_if(ops.rbegin(), ops.rend(), [&](Id op) { return !exchanges(op); });
    return last == ops.rbegin() ? none : *(last - 1);
  }

  bool exchanges(Id op) const { return program_.op(op).def->exchange != nullptr; }

  // Checks that there are no exchanges among updates: those are the recipe's device's.
  void check_meets_nowhere(const Segment& segment, const std::vector<Id>& ops) const {
    if (device_ == own_device) return;
    const auto first = std::find_if(ops.begin(), ops.end(), [&](Id op) { return exchanges(op); });
    if (std::all_of(first, ops.end(), [&](Id op) { return exchanges(op); })) return;
    throw_error(ErrorCode::unsupported, "cannot update segment '", segment.info().name.view(),
                "' on the host: its updates need collectives midway, which only the recipe's device runs; "
                "update there (strategy offload, update = \"device\")");
  }

  // Returns the place of a parameter or a gradient, whole or in parts.
  std::optional<MemoryPlace> stored_place_of(Id value) const {
    const ValueInfo info = program_.value(value);
    const bool is_parameter = info.role == Role::parameter || users_.updates_write(value);
    const RolePlaces& stored_places = is_parameter ? stored_places_.parameters : stored_places_.gradients;
    if (info.role != stored_places.role && stored_places.parts_lie_alike) return stored_places.of_parts;
    if (info.role != stored_places.role)
      throw_error(ErrorCode::unsupported, "cannot place some of the ", stored_places.name,
                  " elsewhere: ranks shard '", info.name.view(), "'; place all ", stored_places.name,
                  " in one memory, or leave strategy zero out");
    const auto found = stored_places.of_whole.find(value);
    return found == stored_places.of_whole.end() ? std::nullopt : std::optional(found->second);
  }

  void move_operands(const Segment& segment, Id op, Id first, std::map<Id, Id>& copies) {
    const std::vector<Id> operands = operands_of(program_.op(op));
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Id value = operands[i];
      const Role role = value == none ? Role::activation : program_.value(value).role;
      // The operand is left out, made by an update, or where it should be.
      if (role == Role::activation || is_state(value)) continue;
      const std::optional<MemoryPlace> stored = role == Role::runtime ? std::nullopt : stored_place_of(value);
      if (stored == pinned) continue;
      const MemoryPlace place = stored ? at_hand() : pinned;
      program_.replace_operand(
          op, static_cast<int>(i),
          is_shared(value) ? shared(value) : copied(segment, value, first, place, copies));
    }
  }

  // Says whether a value is a number of the step that no update changes.
  bool is_shared(Id value) const {
    const ValueInfo info = program_.value(value);
    return info.role == Role::runtime && info.rank == 0 && info.dtype == DType::f64 &&
           !users_.updates_write(value);
  }

  Id shared(Id value) {
    const auto [entry, fresh] = shared_.try_emplace(value, none);
    if (!fresh) return entry->second;
    const std::string name = "host." + std::string(program_.value(value).name.view());
    entry->second = program_.runtime(name);
    program_.place(entry->second, pinned);
    const Segment step(program_, program_.value(value).segment);
    write_copy(step, FunctionKind::update, value, none, entry->second);
    step.run_on(FunctionKind::update, device_);
    return entry->second;
  }

  Id copied(const Segment& segment, Id value, Id first, MemoryPlace place, std::map<Id, Id>& copies) const {
    const auto [entry, fresh] = copies.try_emplace(value, none);
    if (!fresh) return entry->second;
    entry->second = segment.insert(FunctionKind::update, first, "copy", {value}, 1)[0];
    program_.place(entry->second, place);
    return entry->second;
  }

  // Writes a copy into an existing value.
  void write_copy(const Segment& segment, FunctionKind function, Id from, Id before, Id to) const {
    const Id made = segment.insert(function, before, "copy", {from}, 1)[0];
    for (const Id op : segment.operations(function))
      if (const OpInfo info = program_.op(op); info.def->copies && info.operands.data[1] == made)
        return program_.replace_operand(op, 1, to);
  }

  ProgramRef program_;
  std::int32_t device_;
  const UpdatePlaces& stored_places_;
  Users users_;
  bool tiled_;
  std::map<Id, Id> shared_;
};

}  // namespace

void update_elsewhere(ProgramRef program, std::int32_t device, const UpdatePlaces& stored_places,
                      bool tiled) {
  UpdatesElsewhere(program, device, stored_places, tiled).run();
}

}  // namespace prun
