#include "shares.hpp"

#include <algorithm>

#include "prun/error.hpp"

namespace prun {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

[[noreturn]] void refuse(std::string_view key, const std::string& text) {
  const std::string here(called_elsewhere(text));
  throw_error(
      ErrorCode::bad_input, key, " is \"", text,
      here.empty() ? "\"" : "\", which is called \"" + here + "\" here",
      "; it may be device, host, the name of a tier's plugin, auto, or per cent in several of all but "
      "the last that come to 100, such as \"host:70, nvme:30\"");
}

// Parses 1 to 99 per cent; nothing else is one of several shares.
int percent_of(std::string_view digits) {
  const bool good = !digits.empty() && digits.size() <= 2 &&
                    digits.find_first_not_of("0123456789") == std::string_view::npos;
  return good ? std::stoi(std::string(digits)) : 0;
}

// Parses a share such as "host:70".
Share read_share(std::string_view key, std::string_view item, const std::string& all) {
  const std::size_t colon = item.find(':');
  if (colon == std::string_view::npos) refuse(key, all);
  const std::optional<Place> place = place_named(trimmed(item.substr(0, colon)));
  const int percent = percent_of(trimmed(item.substr(colon + 1)));
  if (!place || place->kind == PlaceKind::automatic || percent == 0) refuse(key, all);
  return {*place, percent};
}

}  // namespace

Shares read_shares(std::string_view key, const std::string& text) {
  if (const std::optional<Place> alone = place_named(text)) return {{*alone}};
  Shares shares;
  int sum = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    shares.push_back(read_share(key, item, text));
    sum += shares.back().percent;
    const auto same = [&](const Share& share) { return share.place == shares.back().place; };
    if (std::count_if(shares.begin(), shares.end(), same) > 1) refuse(key, text);
  }
  if (sum != 100) refuse(key, text);
  return shares;
}

bool all_in(const Shares& shares, PlaceKind kind) {
  return shares.size() == 1 && shares.front().place.kind == kind;
}

bool lies_in(const Shares& shares, PlaceKind kind) {
  return std::any_of(shares.begin(), shares.end(),
                     [&](const Share& share) { return share.place.kind == kind; });
}

std::string said(const Shares& shares) {
  std::string text;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    text += i == 0 ? "" : i + 1 == shares.size() ? " and " : ", ";
    text += std::to_string(shares[i].percent) + " % " + where(shares[i].place);
  }
  return text;
}

}  // namespace prun
