#include "train/loop/replicas.hpp"

#include <algorithm>
#include <set>
#include <sstream>

#include "base/sha256.hpp"
#include "base/text.hpp"

namespace prun {
namespace {

// Says whether a parameter, or a state, has a copy in another segment, which another rank holds, or is one
// itself.
bool is_copied(const Program& program, Id original) {
  if (program.value(original).copy_of != none) return true;
  for (Id other = 0; other < program.value_count(); ++other)
    if (program.value(other).copy_of == original) return true;
  return false;
}

// Says whether this is a bucket's own part; otherwise it is all that the rank has of the parameter.
bool is_part(const Program& program, Id parameter, const LocalPart& local_part) {
  return program.value(parameter).bucket >= 0 && local_part.value != parameter;
}

// Returns what comes after the last point of a value's name.
std::string last_word(const std::string& name) { return name.substr(name.rfind('.') + 1); }

// Returns "[0..31, 16..31]" for a parameter that is split.
std::string slice_text(const Program& program, Id id, std::int64_t rank) {
  const Slice slice = slice_of(program, id, rank);
  if (slice.extent == slice.whole) return "";
  std::string text;
  for (std::size_t d = 0; d < slice.whole.size(); ++d)
    text += detail::concat(d ? ", " : " [", slice.start[d], "..", slice.start[d] + slice.extent[d] - 1);
  return text + "]";
}

// Writes "key\tvalue" lines.
std::string to_lines(const std::map<std::string, std::string>& items) {
  std::string text;
  for (const auto& [key, value] : items) text += detail::concat(key, '\t', value, '\n');
  return text;
}
std::map<std::string, std::string> from_lines(const std::string& text) {
  std::map<std::string, std::string> items;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const std::size_t tab = line.find('\t');
    items[line.substr(0, tab)] = line.substr(tab + 1);
  }
  return items;
}

// Maps each key to what ranks say of it.
using Said = std::map<std::string, std::map<std::string, std::vector<std::string>>>;

Said collect(const std::vector<std::string>& texts) {
  Said said;
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    for (const auto& [key, value] : from_lines(texts[rank])) said[key][value].push_back(std::to_string(rank));
  return said;
}

bool differs(const Said::value_type& item) { return item.second.size() > 1; }

// Returns a text such as "ranks 0, 2, 3 against rank 1", most of them first.
std::string sides_text(const std::map<std::string, std::vector<std::string>>& by_value) {
  std::vector<std::vector<std::string>> sides;
  sides.reserve(by_value.size());
  for (const auto& [value, ranks] : by_value) sides.push_back(ranks);
  std::stable_sort(sides.begin(), sides.end(), [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() > b.size() : std::stoi(a.front()) < std::stoi(b.front());
  });
  std::string text;
  for (const std::vector<std::string>& ranks : sides)
    text += (text.empty() ? "" : " against ") + std::string(ranks.size() > 1 ? "ranks " : "rank ") +
            join(ranks, ", ");
  return text;
}

}  // namespace

Replicas::Replicas(const Assembly& assembly, const PlanMemory& memory) : assembly_(assembly) {
  list_copies();
  std::vector<PersistentPart> parts;
  for (const Copy& copy : copies_) parts.push_back(copy.part);
  list_saved(parts);
  if (!parts.empty()) checksums_.emplace(assembly.program(), memory, assembly.devices(), parts);
}

// Names the group by its ranks' coordinates on the axes that they do not differ along; it is empty where
// there is one rank alone.
template <class Alike>
std::string Replicas::group_along(std::string stand, Alike&& alike) const {
  const Mesh& mesh = assembly_.mesh();
  std::string along;
  for (AxisId axis = 0; axis < mesh.size(); ++axis)
    if (mesh.extent(axis) > 1 && alike(axis))
      along += " " + mesh.name(axis);
    else
      stand += detail::concat(" ", mesh.name(axis), "=", mesh.coordinate(assembly_.rank(), axis));
  return along.empty() ? "" : stand + " along" + along;
}

// Lists what strategies keep: ranks compare what they have alike.
void Replicas::list_kept_states() {
  const Program& program = assembly_.program();
  assembly_.each_kept_state([&](Id id, std::int32_t instance) {
    if (!program.value(id).compared) return;
    const bool tied = is_copied(program, id);
    const std::string group = group_along(tied ? "tied" : "", [&](AxisId axis) {
      if (assembly_.pipeline() && assembly_.pipeline()->axis == axis && !tied) return false;
      return program.value(id).on(axis).is_replicated();
    });
    if (!group.empty())
      copies_.push_back(
          {group,
           "'" + assembly_.full_name(id, instance) + "'" + slice_text(program, id, assembly_.rank()),
           {id, instance, 0, program.local_elements(id)}});
  });
}

void Replicas::list_copies() {
  const Program& program = assembly_.program();
  const std::int64_t rank = assembly_.rank();
  assembly_.each_parameter([&](Id parameter, std::int32_t instance) {
    add(parameter, instance, local_part(program, rank, parameter, Kept::parameter), "");
    std::vector<LocalPart> more = local_states(program, rank, parameter);
    more.push_back(local_part(program, rank, parameter, Kept::master));
    for (const LocalPart& one : more)
      if (one.count > 0) add(parameter, instance, one, "." + last_word(program.value(one.value).name));
  });
  list_kept_states();
}

// Lists what is saved: a rank saves a share of what several have.
void Replicas::list_saved(std::vector<PersistentPart>& parts) {
  std::set<std::pair<Id, std::int32_t>> copied;
  for (const Copy& copy : copies_) copied.emplace(copy.part.value, copy.part.instance);
  const std::vector<HeldSlice> slices = assembly_.saved_slices();
  saved_sums_.resize(slices.size());
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (copied.count({slices[i].value, slices[i].instance}) == 0) continue;
    saved_.push_back(i);
    parts.push_back({slices[i].value, slices[i].instance, slices[i].at, slices[i].slice.count});
  }
}

SavedSums Replicas::saved_sums(std::int64_t step) const {
  return step == compared_ ? saved_sums_ : SavedSums{};
}

void Replicas::add(Id parameter, std::int32_t instance, const LocalPart& local_part,
                   const std::string& suffix) {
  const std::string group = local_part.count > 0 ? group_of(parameter, local_part) : "";
  if (!group.empty())
    copies_.push_back({group,
                       name_of(parameter, instance, local_part, suffix),
                       {local_part.value, instance, local_part.at, local_part.count}});
}

std::string Replicas::group_of(Id parameter, const LocalPart& local_part) const {
  const Program& program = assembly_.program();
  const bool part = is_part(program, parameter, local_part), tied = !part && is_copied(program, parameter);
  const std::vector<AxisId> shared =
      part ? axes_of(program.buckets()[static_cast<std::size_t>(program.value(parameter).bucket)].axis)
           : std::vector<AxisId>();
  return group_along(tied ? "tied" : "", [&](AxisId axis) {
    if (assembly_.pipeline() && assembly_.pipeline()->axis == axis) return tied;
    // A strategy may have placed a state otherwise than its parameter.
    return std::find(shared.begin(), shared.end(), axis) == shared.end() &&
           program.value(parameter).on(axis).is_replicated() &&
           (part || program.value(local_part.value).on(axis).is_replicated());
  });
}

std::string Replicas::name_of(Id parameter, std::int32_t instance, const LocalPart& local_part,
                              const std::string& suffix) const {
  const Program& program = assembly_.program();
  const std::string part =
      is_part(program, parameter, local_part)
          ? detail::concat(", elements ", local_part.first, "..", local_part.first + local_part.count - 1)
          : "";
  return "'" + assembly_.full_name(parameter, instance) + suffix + "'" +
         slice_text(program, parameter, assembly_.rank()) + part;
}

// Returns, by group, a line for each copy.
std::map<std::string, std::string> Replicas::checksums() {
  std::map<std::string, std::map<std::string, std::string>> by_group;
  if (checksums_) {
    const std::vector<std::uint64_t> sums = checksums_->take();
    for (std::size_t i = 0; i < copies_.size(); ++i)
      by_group[copies_[i].group][copies_[i].name] =
          format("%016llx", static_cast<unsigned long long>(sums[i]));
    for (std::size_t k = 0; k < saved_.size(); ++k) saved_sums_[saved_[k]] = sums[copies_.size() + k];
  }
  std::map<std::string, std::string> texts;
  for (const auto& [group, lines] : by_group) texts[group] = to_lines(lines);
  return texts;
}

// Compares the copies. Every rank sees the same digests, so all of them go on to the second exchange or none.
void Replicas::compare(std::int64_t step, const Exchange& exchange) {
  const std::vector<int> all = assembly_.mesh().ranks();
  const std::map<std::string, std::string> mine = checksums();
  std::map<std::string, std::string> digests;
  for (const auto& [group, lines] : mine) digests[group] = sha256_hex(lines);
  const Said said = collect(exchange("replicas", all, to_lines(digests)));
  const auto group = std::find_if(said.begin(), said.end(), differs);
  compared_ = step;
  if (group == said.end()) return;
  const auto own = mine.find(group->first);
  const Said details = collect(exchange("replicas in detail", all, own == mine.end() ? "" : own->second));
  const auto first = std::find_if(details.begin(), details.end(), differs);
  PRUN_CHECK(first != details.end(), "digests of ", group->first, " differ, and no checksum does");
  const auto more = std::count_if(details.begin(), details.end(), differs) - 1;
  throw_error(ErrorCode::diverged, "after step ", step, " ", first->first,
              more > 0 ? detail::concat(" and ", more, " more are") : " is",
              " not the same on all ranks: ", sides_text(first->second),
              "; a processor, a memory or a link has given a wrong number. Go on from the newest checkpoint, "
              "whose ranks were compared before it was written, without the hardware that is at fault");
}

}  // namespace prun
