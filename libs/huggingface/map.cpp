#include "huggingface/map.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/text.hpp"

namespace prun {
namespace {

// Holds a parameter and what the list states of it.
class PieceReader {
 public:
  PieceReader(const Value& parameter, const ForeignTensorView& said) : parameter_(parameter), said_(said) {}

  HuggingFacePiece read() {
    const std::size_t rank = parameter_.dims.size();
    piece_.name = said_.name.view();
    piece_.first_layer = said_.first_layer;
    piece_.start.assign(rank, 0);
    for (const Dim& dim : parameter_.dims) piece_.extent.push_back(dim.extent);
    if (said_.part.size > 0) cut(said_.part.view(), said_.begin, said_.end);
    if (said_.also.size > 0) cut(said_.also.view(), said_.also_begin, said_.also_end);
    if (said_.dims.size > 0) {
      read_dims();
    } else {
      piece_.order.resize(rank);
      std::iota(piece_.order.begin(), piece_.order.end(), std::size_t{0});
      piece_.shape = piece_.extent;
    }
    return std::move(piece_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw_error(ErrorCode::bad_input, "the model lists tensor ", in_quotes(said_.name.view()),
                " for parameter ", in_quotes(said_.parameter.view()), ", ", parts...,
                "; its plugin must be mended");
  }

  std::size_t dimension(std::string_view name) const {
    for (std::size_t d = 0; d < parameter_.dims.size(); ++d)
      if (parameter_.dims[d].name.view() == name) return d;
    fail("which has no dimension ", in_quotes(name));
  }

  void cut(std::string_view name, std::int64_t begin, std::int64_t end) {
    const std::size_t d = dimension(name);
    if (begin < 0 || begin >= end || end > parameter_.dims[d].extent)
      fail("with elements ", begin, " to ", end, " of dimension ", in_quotes(name), ", which has ",
           parameter_.dims[d].extent);
    piece_.start[d] = begin;
    piece_.extent[d] = end - begin;
  }

  void read_dims() {
    for (const std::string_view group : split(said_.dims.view(), ',')) {
      std::int64_t extent = 1;
      for (const std::string_view name : split(trim(group), ' ')) {
        if (name.empty()) continue;
        const std::size_t d = dimension(name);
        if (std::find(piece_.order.begin(), piece_.order.end(), d) != piece_.order.end())
          fail("where dimension ", in_quotes(name), " stands twice");
        piece_.order.push_back(d);
        extent *= piece_.extent[d];
      }
      piece_.shape.push_back(extent);
    }
    if (piece_.order.size() != parameter_.dims.size()) fail("where not all dimensions stand");
  }

  const Value& parameter_;
  const ForeignTensorView& said_;
  HuggingFacePiece piece_;
};

// Joins pieces of one name, which are one tensor, in the order in which they are listed.
void join(std::vector<HuggingFacePiece>& pieces) {
  std::map<std::string_view, std::int64_t> rows;
  for (HuggingFacePiece& piece : pieces) {
    if (piece.shape.empty()) continue;
    piece.row = rows[piece.name];
    rows[piece.name] += piece.shape.front();
  }
  for (HuggingFacePiece& piece : pieces)
    if (!piece.shape.empty()) piece.shape.front() = rows.at(piece.name);
}

bool overlap(const HuggingFacePiece& a, const HuggingFacePiece& b) {
  for (std::size_t d = 0; d < a.start.size(); ++d)
    if (a.start[d] >= b.start[d] + b.extent[d] || b.start[d] >= a.start[d] + a.extent[d]) return false;
  return true;
}

void check_covered(const std::string& name, const Value& parameter,
                   const std::vector<HuggingFacePiece>& pieces) {
  std::int64_t elements = 0;
  bool once = true;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    elements += elements_of(pieces[i].extent);
    for (std::size_t j = 0; j < i; ++j) once = once && !overlap(pieces[i], pieces[j]);
  }
  if (!once || elements != parameter.elements())
    throw_error(ErrorCode::bad_input, "the tensors that the model lists for parameter ", in_quotes(name),
                " give ", once ? "only some of its elements" : "some of its elements twice",
                "; weights of others have no place for it");
}

}  // namespace

std::string HuggingFacePiece::name_of(std::int64_t layer) const {
  const std::size_t star = name.find('*');
  if (star == std::string::npos) return name;
  return name.substr(0, star) + std::to_string(first_layer + layer) + name.substr(star + 1);
}

Extents HuggingFacePiece::strides() const {
  Extents strides(order.size());
  std::int64_t stride = 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = stride;
    stride *= extent[order[i]];
  }
  return strides;
}

HuggingFaceMap::HuggingFaceMap(const Program& program, ModelInterface& model) {
  ForeignWeightsView view{};
  raise(model.foreign_weights(&view));
  read(program, view, true);
}

HuggingFaceMap::HuggingFaceMap(const Program& program, const ForeignWeights& listed) {
  read(program, KeptForeignWeights(listed).view(), false);
}

// `all` says that the list must have every parameter of the model's own.
void HuggingFaceMap::read(const Program& program, const ForeignWeightsView& view, bool all) {
  for (const Text& prefix : view.prefixes) prefixes_.emplace_back(prefix.view());
  for (const Text& pattern : view.ignored) {
    const std::string_view name = pattern.view(), copy = name.substr(0, name.find('='));
    ignored_.emplace_back(copy);
    if (copy != name) copies_.emplace_back(copy, name.substr(copy.size() + 1));
  }
  for (const Id id : program.parameters()) {
    const Id copied = program.value(id).copy_of;
    Value parameter = program.value(copied == none ? id : copied);
    parameter.dims = parameter.tensor_dims();
    if (parameter.part) parameter.name = parameter.part->tensor;
    const std::string name = program.segment(parameter.segment).name + "." + parameter.name;
    std::vector<HuggingFacePiece> pieces;
    for (const ForeignTensorView& said : view.tensors)
      if (said.parameter.view() == name) pieces.push_back(PieceReader(parameter, said).read());
    if (pieces.empty() && (!all || !parameter.added_by.empty())) continue;
    check_covered(name, parameter, pieces);
    join(pieces);
    pieces_[id] = std::move(pieces);
  }
}

namespace {

// A model of pictures and texts calls the tensors of its model of texts so, by the release of transformers
// that has written it, and others beside them so.
constexpr struct {
  std::string_view alone, held;
} text_parts[] = {{"", "language_model."}, {"model.", "model.language_model."}};
constexpr std::string_view other_parts[] = {"vision_tower.*", "multi_modal_projector.*",
                                            "visual.*",       "model.vision_tower.*",
                                            "model.visual.*", "model.multi_modal_projector.*"};

bool matches_any(const auto& patterns, std::string_view name) {
  return std::any_of(std::begin(patterns), std::end(patterns),
                     [&](std::string_view pattern) { return glob_match(pattern, name); });
}

}  // namespace

std::vector<std::string> HuggingFaceMap::spellings(const std::string& name) const {
  std::vector<std::string> list = {name};
  const bool prefixed = !prefixes_.empty() && name.starts_with(prefixes_.front());
  for (std::size_t i = 1; prefixed && i < prefixes_.size(); ++i)
    list.push_back(prefixes_[i] + name.substr(prefixes_.front().size()));
  for (const auto& part : text_parts)
    if (name.starts_with(part.alone)) list.push_back(std::string(part.held) + name.substr(part.alone.size()));
  return list;
}

bool HuggingFaceMap::ignores(std::string_view name) const {
  if (matches_any(ignored_, name) || matches_any(other_parts, name)) return true;
  for (const auto& part : text_parts)
    if (name.starts_with(part.held) &&
        matches_any(ignored_, std::string(part.alone) + std::string(name.substr(part.held.size()))))
      return true;
  return false;
}

}  // namespace prun
