// Offload: what a rank's own device has no room for lies in the host's memory, or on drives.
//   optimizer = "host"   master copies and moments lie there, and updates run on the host's cores: gradients
//                        come to them and parameters go back
//                        (update = "device": state comes to the device in turn, and goes back; "auto" is
//                        settled by the core, and stands for "host" where nobody did)
//   optimizer = "nvme"   updates run there too, but master copies and moments lie on drives: they come to
//                        memory for an instance's update and go back behind it
//   gradients = "host"   gradients leave the device as soon as a segment's backward has finished them
//   parameters = "host"  parameters are fetched ahead of each use, and updated where they lie
//   activations = "host" what backward reads of forward leaves meanwhile
// The last three are "nvme" likewise: then what updates need of them comes to memory and goes back as state
// does.
//   tile = "tensor"      what updates need comes to memory in pieces of a layer, which takes less of it
//   "host:70, nvme:30"   of any of the four: per cent, in whole tensors, so that each layer has some here and
//                        some there
//   "auto"               as "device" where the plan fits like that, else as the next that does
//
// Which values those are follows from who touches them: optimizer state that only updates touch lies with
// them; what others touch too is copied there before the updates, and what those change of it is copied back.
// The few numbers that all updates read (learning rate, clip factor, keep) come there once, before the first
// update: the next step may write its own while updates still run.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "prun/plugin.hpp"
#include "spread.hpp"
#include "tiles.hpp"

namespace prun {
namespace {

constexpr std::int32_t own = 0;  // device: the recipe's
constexpr MemoryPlace pinned{own, Space::pinned};
constexpr std::size_t ahead = 3;  // tiles there at once: one comes, one is updated, one goes back

// Where each lies, in the words of the recipe.
struct Lies {
  std::string optimizer, gradients, parameters, activations;

  bool any(const char* tier) const {
    return lies_in(optimizer, tier) || lies_in(gradients, tier) || lies_in(parameters, tier) ||
           lies_in(activations, tier);
  }
  bool only_state_and_activations() const { return gradients == "device" && parameters == "device"; }
  friend bool operator==(const Lies&, const Lies&) = default;
};

// Tiled: what updates need of a layer comes to memory in pieces, which takes less of it and reads less ahead.
struct Way {
  Lies lies;
  bool tiled = false;

  friend bool operator==(const Way&, const Way&) = default;
};

// "optimizer state and gradients lie in the host's memory"
std::string text_of(const Lies& lies, const char* tier, const char* where) {
  std::vector<std::string> there;
  if (lies.optimizer == tier) there.emplace_back("optimizer state");
  if (lies.gradients == tier) there.emplace_back("gradients");
  if (lies.activations == tier) there.emplace_back("activations");
  if (lies.parameters == tier) there.emplace_back("parameters");
  std::string text;
  for (std::size_t i = 0; i < there.size(); ++i)
    text += (i == 0 ? "" : i + 1 == there.size() ? " and " : ", ") + there[i];
  const bool one = there.size() == 1 && lies.optimizer == tier;
  return there.empty() ? "" : text + (one ? " lies " : " lie ") + where;
}

struct Spreads {
  Spread states, parameters, gradients;
  // Of what, only whoever lowers the program knows.
  std::vector<Share> activations;

  Spreads(ProgramRef program, const Users& users, const Lies& lies)
      : states(states_of(program, users), read_shares("optimizer", lies.optimizer)),
        parameters(tensors_of(program, Role::parameter), read_shares("parameters", lies.parameters)),
        gradients(tensors_of(program, Role::gradient), read_shares("gradients", lies.gradients)),
        activations(read_shares("activations", lies.activations)) {}

  bool in_one_place() const {
    return states.in_one_place() && parameters.in_one_place() && gradients.in_one_place() &&
           activations.size() == 1;
  }
};

std::string text_of(const Way& way, const Spreads& spreads) {
  const Lies& lies = way.lies;
  std::string text;
  for (const std::string& part :
       {spreads.states.in_one_place() ? "" : "optimizer state lies " + spreads.states.said(),
        spreads.parameters.in_one_place() ? "" : "parameters lie " + spreads.parameters.said(),
        spreads.gradients.in_one_place() ? "" : "gradients lie " + spreads.gradients.said(),
        spreads.activations.size() == 1
            ? ""
            : "activations lie " + said(spreads.activations) + ", as near as whole tensors of a layer come",
        text_of(lies, "host", "in the host's memory"), text_of(lies, "nvme", "on drives")})
    text += (text.empty() || part.empty() ? "" : "; ") + part;
  return "offload: " + (text.empty() ? "all lies on the device" : text) +
         (way.tiled ? ", updated tensor by tensor" : "");
}

// Where values of a role lie; nothing: on the device.
struct Homes {
  Role role;
  const char* name;
  std::map<Id, MemoryPlace> of_whole = {};
  std::optional<MemoryPlace> of_parts = {};  // that ranks keep
  bool parts_lie_alike = true;               // else there is no such place
};

// The updates of one program, and where they find what they need.
class UpdatesElsewhere {
 public:
  // `device`: which runs them. `states`: where what only updates touch lies. `tiled`: not all that the
  // updates of a layer need has to be in memory at once.
  UpdatesElsewhere(ProgramRef program, std::int32_t device, std::map<Id, MemoryPlace> states,
                   const Homes& parameters, const Homes& gradients, bool tiled)
      : program_(program),
        device_(device),
        states_(std::move(states)),
        parameters_(parameters),
        gradients_(gradients),
        users_(program),
        tiled_(tiled) {}

  void run() {
    for (const Segment& segment : program_.segments())
      if (!segment.operations(FunctionKind::update).empty()) move(segment);
  }

 private:
  struct Copies {
    std::map<Id, Id> states, others;  // by what they are of
  };

  // What a tile's updates need comes two tiles ahead of them, and what they change goes back behind them:
  // three tiles are there at once. The last goes back before what follows the updates (a gather) reads it.
  void move(const Segment& segment) {
    const std::vector<Id> ops = segment.operations(FunctionKind::update);
    const std::vector<Tile> tiles = tiles_of(program_, ops, tiled_);
    Copies copies;
    const auto fetch = [&](std::size_t tile, Id before) {
      for (const Id op : tiles[tile]) move_states(segment, op, before, copies.states);
      for (const Id op : tiles[tile])
        if (device_ != own) move_operands(segment, op, before, copies.others);
    };
    const std::vector<std::set<Id>> done = written_last(tiles);
    for (std::size_t t = 0; t < std::min(ahead, tiles.size()); ++t) fetch(t, tiles.front().front());
    if (device_ != own) segment.run_on(FunctionKind::update, device_);
    for (std::size_t t = 0; t < tiles.size(); ++t) {
      const Id next = t + 1 < tiles.size() ? tiles[t + 1].front() : behind(ops);
      if (t > 0 && t + ahead - 1 < tiles.size()) fetch(t + ahead - 1, tiles[t].front());
      for (const std::map<Id, Id>* const some : {&copies.others, &copies.states})
        for (const auto& [value, copy] : *some)
          if (done[t].count(value) != 0) write_copy(segment, FunctionKind::update, copy, next, value);
    }
  }

  // By tile: what no later one changes.
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

  // Where updates find what lies too far away for them.
  MemoryPlace at_hand() const { return {device_, device_ == own ? Space::device : Space::host}; }

  bool is_state(Id value) const { return states_.count(value) != 0; }
  bool reaches(MemoryPlace home) const {
    return device_ == own ? home == MemoryPlace{} : home.space == Space::host;
  }
  // Drives reach memory of the host's device alone, the recipe's device what is pinned.
  MemoryPlace at_hand(MemoryPlace home) const {
    return device_ != own && home == MemoryPlace{} ? pinned : at_hand();
  }

  // What lies where updates do not reach it comes to them first: that takes longest.
  void move_states(const Segment& segment, Id op, Id first, std::map<Id, Id>& copies) {
    const std::vector<Id> operands = operands_of(program_.op(op));
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (!is_state(operands[i])) continue;
      const MemoryPlace home = states_.at(operands[i]);
      program_.place(operands[i], home);
      if (!reaches(home))
        program_.replace_operand(op, static_cast<int>(i),
                                 copied(segment, operands[i], first, at_hand(home), copies));
    }
  }

  // Where exchanges begin, if there are any.
  Id behind(const std::vector<Id>& ops) const {
    const auto found =
        std::find_if(ops.begin(), ops.end(), [&](Id op) { return program_.op(op).def->exchange != nullptr; });
    return found == ops.end() ? none : *found;
  }

  // Of a parameter or a gradient, whole or in parts.
  std::optional<MemoryPlace> home_of(Id value) const {
    const ValueInfo info = program_.value(value);
    const bool is_parameter = info.role == Role::parameter || users_.updates_write(value);
    const Homes& homes = is_parameter ? parameters_ : gradients_;
    if (info.role != homes.role && homes.parts_lie_alike) return homes.of_parts;
    if (info.role != homes.role)
      throw_error(ErrorCode::unsupported, homes.name, " are shared out by whole tensors, and ranks keep '",
                  info.name.view(), "' in parts; let all ", homes.name,
                  " lie in one place, or leave strategy zero out");
    const auto found = homes.of_whole.find(value);
    return found == homes.of_whole.end() ? std::nullopt : std::optional(found->second);
  }

  void move_operands(const Segment& segment, Id op, Id first, std::map<Id, Id>& copies) {
    const std::vector<Id> operands = operands_of(program_.op(op));
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Id value = operands[i];
      const Role role = value == none ? Role::activation : program_.value(value).role;
      // Left out, made by an update, or where it should be.
      if (role == Role::activation || is_state(value)) continue;
      const std::optional<MemoryPlace> home = role == Role::runtime ? std::nullopt : home_of(value);
      if (home == pinned) continue;
      const MemoryPlace place = home ? at_hand() : pinned;
      program_.replace_operand(
          op, static_cast<int>(i),
          is_shared(value) ? shared(value) : copied(segment, value, first, place, copies));
    }
  }

  // A number of the step that no update changes.
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

  // A copy into a value that is there.
  void write_copy(const Segment& segment, FunctionKind function, Id from, Id before, Id to) const {
    const Id made = segment.insert(function, before, "copy", {from}, 1)[0];
    for (const Id op : segment.operations(function))
      if (const OpInfo info = program_.op(op); info.def->copies && info.operands.data[1] == made)
        return program_.replace_operand(op, 1, to);
  }

  ProgramRef program_;
  std::int32_t device_;
  std::map<Id, MemoryPlace> states_;
  const Homes& parameters_;
  const Homes& gradients_;
  Users users_;
  bool tiled_;
  std::map<Id, Id> shared_;
};

class Offload final : public Strategy {
 public:
  explicit Offload(const Options& options) : update_(options.text("update")), tile_(options.text("tile")) {
    Lies wanted{options.text("optimizer"), options.text("gradients"), options.text("parameters"),
                options.text("activations")};
    if (options.text("mode") == "auto") choose_all(wanted);
    check(wanted);
    add_ways(wanted);
  }

  void apply(ProgramRef program) override {
    const Users users(program);
    const auto& [lies, tiled] = chosen(program, users);
    if (lies.optimizer == "device" && lies.activations == "device") return;
    const std::int32_t host = program.device("cpu");  // whose memory it is that all this takes
    const MemoryPlace disk =
        lies.any("nvme") ? MemoryPlace{program.device("nvme"), Space::disk} : MemoryPlace{};
    const auto home = [&](const std::string& tier) -> std::optional<MemoryPlace> {
      if (tier == "device") return {};
      return tier == "nvme" ? disk : pinned;
    };
    const Spreads spreads(program, users, lies);
    share_activations(program, spreads.activations, home);
    if (lies.optimizer == "device") return;
    const bool here = update_ == "device";
    std::map<Id, MemoryPlace> states;
    for (const auto& [value, tier] : spreads.states.tiers())
      states[value] =
          tier == "host" && !here ? MemoryPlace{host, Space::host} : home(tier).value_or(MemoryPlace{});
    const Homes parameters =
                    homes_of({Role::parameter, "parameters"}, spreads.parameters, lies.parameters, home),
                gradients = homes_of({Role::gradient, "gradients"}, spreads.gradients, lies.gradients, home);
    UpdatesElsewhere(program, here ? own : host, std::move(states), parameters, gradients, tiled).run();
    for (const Homes* const homes : {&parameters, &gradients})
      for (const auto& [value, place] : homes->of_whole) program.place(value, place);
  }

 private:
  // By tier; nothing: on the device.
  using HomeOf = std::function<std::optional<MemoryPlace>(const std::string&)>;

  static void share_activations(ProgramRef program, const std::vector<Share>& shares, const HomeOf& home) {
    std::vector<SavedShare> saved;
    for (const Share& share : shares)
      saved.push_back({home(share.tier).value_or(MemoryPlace{}), share.percent});
    const std::vector<Segment> segments = program.segments();
    for (std::size_t i = 1; i < segments.size(); ++i) segments[i].share_saved(saved);
  }

  static Homes homes_of(Homes homes, const Spread& spread, const std::string& lies, const HomeOf& home) {
    for (const auto& [value, tier] : spread.tiers())
      if (const auto place = home(tier)) homes.of_whole[value] = *place;
    homes.parts_lie_alike = spread.in_one_place();
    if (homes.parts_lie_alike) homes.of_parts = home(lies);
    return homes;
  }

  static void choose_all(Lies& wanted) {
    if (wanted.optimizer != "host" || wanted.gradients != "device" || wanted.parameters != "device" ||
        wanted.activations != "device")
      throw_error(ErrorCode::bad_input,
                  "mode = \"auto\" chooses where optimizer, gradients, parameters and activations lie; leave "
                  "those four out, or set some of them to \"auto\" instead of mode");
    wanted = {"auto", "auto", "auto", "auto"};
  }

  void check(const Lies& wanted) const {
    read_shares("optimizer", wanted.optimizer);
    read_shares("parameters", wanted.parameters);
    read_shares("gradients", wanted.gradients);
    read_shares("activations", wanted.activations);
    const auto elsewhere = [](const std::string& place) {
      return lies_in(place, "host") || lies_in(place, "nvme");
    };
    const bool others = elsewhere(wanted.gradients) || elsewhere(wanted.parameters);
    if (wanted.optimizer == "device" && others)
      throw_error(ErrorCode::bad_input,
                  "parameters or gradients lie elsewhere where updates run on the host; set optimizer = "
                  "\"host\" or \"nvme\" too");
    if (update_ == "device" && (others || lies_in(wanted.optimizer, "nvme")))
      throw_error(
          ErrorCode::bad_input,
          "update = \"device\" fetches optimizer state from the host's memory and finds gradients and "
          "parameters on the device; leave those there and state in the host's memory, or leave update out");
  }

  // What may go together, cheapest first: optimizer state moves once a step, parameters with each use, and
  // drives are slower than memory.
  void add_ways(const Lies& wanted) {
    struct Tiers {
      std::string state, others;
    };
    for (const auto& [state, others] :
         {Tiers{"device", "host"}, Tiers{"host", "host"}, Tiers{"nvme", "host"}, Tiers{"nvme", "nvme"}})
      for (const std::string& parameters : {std::string("device"), others})
        for (const std::string& activations : {std::string("device"), others})
          for (const std::string& gradients : {std::string("device"), others})
            add_way(wanted, {state, gradients, parameters, activations});
  }

  // What is said stays so.
  void add_way(const Lies& wanted, Lies lies) {
    for (std::string Lies::*const what :
         {&Lies::optimizer, &Lies::gradients, &Lies::parameters, &Lies::activations})
      if (wanted.*what != "auto") lies.*what = wanted.*what;
    const bool state_first = wanted.optimizer == "auto" && wanted.activations == "auto";
    if (lies.optimizer == "device" &&
        (!lies.only_state_and_activations() || (state_first && lies.activations != "device")))
      return;
    if (update_ == "device" && (!lies.only_state_and_activations() || lies_in(lies.optimizer, "nvme")))
      return;
    for (const bool tiled : {false, true})
      if (tile_ == "auto" ? lies.optimizer != "device" || !tiled : tiled == (tile_ == "tensor"))
        if (const Way way{lies, tiled}; std::find(ways_.begin(), ways_.end(), way) == ways_.end())
          ways_.push_back(way);
  }

  // What is only said, and exact, needs no choice.
  const Way& chosen(ProgramRef program, const Users& users) const {
    std::vector<std::string> texts;
    bool exact = true;
    for (const Way& way : ways_) {
      const Spreads spreads(program, users, way.lies);
      exact &= spreads.in_one_place();
      texts.push_back(text_of(way, spreads));
    }
    return exact && ways_.size() == 1 ? ways_.front() : ways_[program.choose_to_fit(texts)];
  }

  std::string update_, tile_;
  std::vector<Way> ways_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(
    strategy, prun::Offload, "offload", "0.1.0", "Keeps in the host's memory what a device has no room for",
    "phase=memory; frees=optimizer:host, gradients:host, parameters:host, activations:host; timed=update; "
    "bench=none mode:each update:host optimizer:device parameters:device gradients:device "
    "activations:device, optimizer mode:each update:host optimizer:host parameters:device gradients:device "
    "activations:device, all mode:each update:host optimizer:host parameters:host gradients:host "
    "activations:host, nvme-optimizer mode:each update:host optimizer:nvme parameters:device "
    "gradients:device activations:device, nvme-all mode:each update:host optimizer:nvme parameters:nvme "
    "gradients:nvme activations:nvme",
    "mode        | choice | each | each,auto | each: as said below; auto: what the plan has no room for "
    "goes to the next place, what costs least first\n"
    "optimizer   | string | host | | Where master copies and moments lie: device, host, nvme, auto, or per "
    "cent in several, such as host:70, nvme:30\n"
    "update      | choice | host | host,device,auto | What updates state in the host's memory: its cores, or "
    "the device, to which it comes in turn; auto: what is predicted to take less time\n"
    "tile        | choice | auto | auto,layer,tensor | How much of what updates need comes to memory at a "
    "time: three layers, or three times a layer's largest tensor; auto: tensors where layers do not fit\n"
    "gradients   | string | device | | Where gradients lie once a step's are complete: as optimizer\n"
    "parameters  | string | device | | Where parameters lie while nobody computes with them: as optimizer\n"
    "activations | string | device | | Where what backward reads of forward lies in between: as optimizer\n");
