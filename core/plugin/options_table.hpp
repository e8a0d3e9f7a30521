// Makes the table of calls by which a plugin reads options, from a class that has one static function for
// each.
#pragma once

#include "prun/options.hpp"

namespace prun {

// Makes the table; `source` is passed to the functions, which do not change it.
template <class Calls>
OptionsApi options_table(const void* source) {
  return {sizeof(OptionsApi), const_cast<void*>(source), Calls::integer,     Calls::number,    Calls::flag,
          Calls::text,        Calls::list_size,          Calls::list_number, Calls::list_text, Calls::has};
}

}  // namespace prun
