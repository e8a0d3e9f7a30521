#include "destinations.hpp"

#include "prun/error.hpp"

namespace prun::copies {
namespace {

bool are_same(const CommOp& a, const CommOp& b) {
  return a.kind == b.kind && a.reduction == b.reduction && a.dtype == b.dtype && a.peer == b.peer &&
         a.in == b.in && a.out == b.out && a.count == b.count;
}

bool are_same(std::span<const CommOp> a, std::span<const CommOp> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const CommOp& one, const CommOp& other) { return are_same(one, other); });
}

std::int64_t result_bytes(const CommOp& op, std::int32_t size) {
  const bool has_parts = op.kind == CommKind::all_gather || op.kind == CommKind::all_to_all;
  return op.count * size_of(op.dtype) * (has_parts ? size : 1);
}

}  // namespace

// Gives all members the first problem that one has.
std::string Destinations::first_problem(const std::string& mine) {
  using Answer = std::array<char, 256>;
  Answer own{};
  mine.copy(own.data(), own.size() - 1);
  std::vector<Answer> all(static_cast<std::size_t>(layout_.size()));
  wires_.all_gather(own.data(), own.size(), all.data());
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i][0]) return "member " + std::to_string(i) + ": " + all[i].data();
  return {};
}

// Runs `work` and returns the first problem that any member had with it.
template <class Work>
std::string Destinations::together(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return first_problem(error.what());
  }
  return first_problem({});
}

std::string Destinations::attach(void* base) {
  Allocation own;
  if (std::string problem = together([&] { own = allocation_of(driver_, base); }); !problem.empty())
    return problem;
  std::vector<std::size_t> sizes(static_cast<std::size_t>(layout_.size()));
  wires_.all_gather(&own.bytes, sizeof own.bytes, sizes.data());
  const std::vector<File> files = wires_.all_gather_files(own.file.number());
  Memory memory{own.begin, static_cast<std::int64_t>(own.bytes), {}};
  std::string problem = together([&] {
    for (std::size_t i = 0; i < files.size(); ++i) {
      auto& other = memory.others.emplace_back();
      if (static_cast<std::int32_t>(i) != layout_.rank())
        other = std::make_unique<SharedRange>(driver_, files[i].number(), sizes[i]);
    }
  });
  if (problem.empty()) memories_.push_back(std::move(memory));
  return problem;
}

void Destinations::detach() {
  prepared_.clear();
  memories_.clear();
}

void Destinations::abandon() {
  for (Memory& memory : memories_)
    for (auto& other : memory.others) static_cast<void>(other.release());
  detach();
}

// Others are sums, which need slots, or are between two members, whose lists may differ.
bool Destinations::may_be_placed(const CommOp& op) const {
  if (op.count == 0) return false;
  if (op.kind == CommKind::all_reduce) return !is_small(op, layout_);
  return op.kind == CommKind::all_gather || op.kind == CommKind::all_to_all || op.kind == CommKind::broadcast;
}

Destinations::Place Destinations::place_of(const CommOp& op) const {
  Place place;
  place.operation = (static_cast<std::uint64_t>(op.count) << 16) +
                    (static_cast<std::uint64_t>(op.kind) << 8) + static_cast<std::uint64_t>(op.dtype);
  const auto* const out = static_cast<const std::byte*>(op.out);
  for (std::size_t m = 0; m < memories_.size(); ++m) {
    const Memory& memory = memories_[m];
    if (out < memory.base || out + result_bytes(op, layout_.size()) > memory.base + memory.bytes) continue;
    place.memory = static_cast<std::int64_t>(m), place.offset = out - memory.base;
  }
  return place;
}

// Reads the places that all members gave for operation `number` of `count`.
Places Destinations::places_of(std::size_t number, std::size_t count, const std::vector<Place>& all) const {
  Places places{};
  const Place& own = all[static_cast<std::size_t>(layout_.rank()) * count + number];
  for (std::int32_t i = 0; i < layout_.size(); ++i) {
    const Place& theirs = all[static_cast<std::size_t>(i) * count + number];
    if (theirs.operation != own.operation)
      throw_error(ErrorCode::unsupported,
                  "comm copies: members list other operations; set comm.copies.direct = false");
    if (theirs.memory < 0) return Places{};
    if (i == layout_.rank()) continue;
    const Memory& memory = memories_.at(static_cast<std::size_t>(theirs.memory));
    places[static_cast<std::size_t>(i)] = memory.others[static_cast<std::size_t>(i)]->data() + theirs.offset;
  }
  return places;
}

void Destinations::prepare(std::span<const CommOp> ops) {
  std::vector<Place> mine;
  for (const CommOp& op : ops)
    if (may_be_placed(op)) mine.push_back(place_of(op));
  if (memories_.empty() || mine.empty()) return;
  const std::size_t count = mine.size();
  std::vector<std::size_t> counts(static_cast<std::size_t>(layout_.size()));
  wires_.all_gather(&count, sizeof count, counts.data());
  for (const std::size_t theirs : counts)
    if (theirs != count)
      throw_error(ErrorCode::unsupported,
                  "comm copies: members list other operations; set comm.copies.direct = false");
  std::vector<Place> all(count * counts.size());
  wires_.all_gather(mine.data(), count * sizeof(Place), all.data());
  std::vector<Places> places;
  std::size_t number = 0;
  for (const CommOp& op : ops)
    places.push_back(may_be_placed(op) ? places_of(number++, count, all) : Places{});
  keep(ops, std::move(places));
}

// A list may come again, as calls share it. The others' results must then lie where they lay before.
void Destinations::keep(std::span<const CommOp> ops, std::vector<Places> places) {
  Prepared& known = prepared_[ops.data()];
  if (are_same(known.ops, ops) && known.places != places)
    throw_error(ErrorCode::unsupported,
                "comm copies: one list of operations of this rank is several of another; set "
                "comm.copies.direct = false");
  known.ops.assign(ops.begin(), ops.end());
  known.places = std::move(places);
}

std::span<const Places> Destinations::of(std::span<const CommOp> ops) const {
  const auto found = prepared_.find(ops.data());
  if (found == prepared_.end() || !are_same(found->second.ops, ops)) return {};
  return found->second.places;
}

}  // namespace prun::copies
