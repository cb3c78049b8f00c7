# px completion for fish. px itself knows the words; it reads the project and runs nothing of it.
function __px_words
    set -l line (commandline -opc)
    set -l current (commandline -ct)
    for found in (PYTHONPATH='' command px completions -- $line[2..] "$current" 2>/dev/null)
        switch $found
            case ':files'
                __fish_complete_path "$current"
            case ':directories'
                __fish_complete_directories "$current"
            case '*'
                printf '%s\n' $found
        end
    end
end
complete -c px -f -a '(__px_words)'
