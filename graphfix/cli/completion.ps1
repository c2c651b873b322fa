# Completion of %(prog_name)s in PowerShell 5 and later. A file's name is completed by PowerShell.
Register-ArgumentCompleter -Native -CommandName %(prog_name)s -ScriptBlock {
    param($word, $ast, $cursor)
    $env:COMP_WORDS = $ast.ToString()
    $env:COMP_WORD = $word
    $env:%(complete_var)s = "powershell_complete"
    try {
        & %(prog_name)s | ForEach-Object {
            $type, $value, $help = $_ -split "`t", 3
            if ($type -eq "plain") {
                [System.Management.Automation.CompletionResult]::new($value, $value, "ParameterValue", $help)
            }
        }
    }
    finally {
        Remove-Item Env:COMP_WORDS, Env:COMP_WORD, Env:%(complete_var)s -ErrorAction SilentlyContinue
    }
}
