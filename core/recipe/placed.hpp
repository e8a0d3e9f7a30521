// Shows errors that plugins and readers of files state about a section of the recipe at their place in it.
#pragma once

#include <string_view>
#include <utility>

#include "prun/error.hpp"
#include "recipe/recipe.hpp"

namespace prun::recipe {

// Marks an error that has line and caret already.
class PlacedError final : public Error {
 public:
  using Error::Error;
};

// Throws, within a handler, the error with line and caret, of the key that it names first, or else of `key`.
// Errors that the recipe's author cannot correct, or that are not of it, are thrown on as they are.
[[noreturn]] void throw_placed(const RecipeSection& section, std::string_view key, const Error& error);

// Returns what `body` returns; its errors are about that section, and if they name no other key of it, about
// `key`.
template <class Body>
decltype(auto) in_section(const RecipeSection& section, Body&& body, std::string_view key = "plugin") {
  try {
    return std::forward<Body>(body)();
  } catch (const PlacedError&) {
    throw;
  } catch (const Error& error) {
    throw_placed(section, key, error);
  }
}

}  // namespace prun::recipe
