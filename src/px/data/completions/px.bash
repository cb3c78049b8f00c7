# px completion for bash. px itself knows the words; it reads the project and runs nothing of it.
_px() {
  local word current="${COMP_WORDS[COMP_CWORD]}"
  local -a files
  COMPREPLY=()
  while IFS=$'\t' read -r word _; do
    case "$word" in
      :files) mapfile -t files < <(compgen -f -- "${current#=}") ;;
      :directories) mapfile -t files < <(compgen -d -- "${current#=}") ;;
      *) COMPREPLY+=("$word") ;;
    esac
  done < <(PYTHONPATH='' command px completions -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  if ((${#files[@]})); then
    compopt -o filenames 2>/dev/null
    COMPREPLY+=("${files[@]}")
  fi
}
complete -F _px px
